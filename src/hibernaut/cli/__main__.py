"""`python -m hibernaut.cli` is the `hibernaut` command."""

from hibernaut.cli.root import main

main()
