"""Which trials exist: study file -> validated study -> plan. Needs neither torch nor Ray."""
