"""Where the trials run: the only importer of Ray. Importing this package settles Ray's environment,
before Ray.
"""

import os

from clsweep.cluster.environment import ENVIRONMENT

os.environ.update(ENVIRONMENT)
if os.path.expanduser("~") == "~":  # of a user whom the system does not know; Ray asks for it
    os.environ["HOME"] = "/"
