"""`python -m clsweep` is the command `clsweep`."""

from clsweep.cli.main import main

if __name__ == "__main__":
    main()
