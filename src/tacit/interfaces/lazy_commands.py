"""Commands whose modules are imported when they are called, so that ``tacit --help`` stays quick."""

from importlib import import_module

import click
import typer
import typer.core


class LazyCommand(click.Command):
    """The name and help line of a command, and the module that defines it.

    Args:
        name: The name of the command.
        line: Its help line, the first line of its help text.
        module: The module, which has the command in its Typer app ``app``.
        is_group: Whether the whole app is the command, with the commands in it as subcommands.
    """

    def __init__(self, name: str, line: str, module: str, *, is_group: bool = False) -> None:
        super().__init__(name, short_help=line)
        self._module, self._is_group = module, is_group

    def load(self) -> click.Command:
        """Imports the command.

        Returns:
            The command or group.
        """
        group = typer.main.get_group(import_module(self._module).app)
        return group if self._is_group else group.commands[str(self.name)]


class LazyGroup(typer.core.TyperGroup):
    """A group that loads a command when it is called. Listing commands loads none."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that was asked for and loads it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
