"""`python -m compiler` is the command `baton`."""

from compiler.cli import main

if __name__ == "__main__":
    main()
