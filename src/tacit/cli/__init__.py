"""The command line. `tacit.cli.main` lists the commands and imports the module of the one that is called."""
