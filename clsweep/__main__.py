"""`python -m clsweep` is the command `clsweep`."""

import sys


def main() -> None:
    """The command; Ctrl-C ends it without a traceback while it is loaded, too."""
    try:
        from clsweep.cli.main import run_app
    except KeyboardInterrupt:
        sys.exit(130)
    run_app()


if __name__ == "__main__":
    main()
