"""`python -m hibernaut` is the `hibernaut` command."""

from hibernaut.cli import main

if __name__ == "__main__":
    main()
