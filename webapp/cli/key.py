"""`berth key`"""

from __future__ import annotations

import click

from webapp.cli.house import open_house
from webapp.key_files import add_data_key, load_data_keys, seal_of
from webapp.services import sealing


@click.group(name="key")
def command() -> None:
    """The key that secrets in the database are sealed with: rotate, forget."""


@command.command()
def rotate() -> None:
    """Make a new data_key and seal everything with it. Nobody notices; the former key stays in the file once more.

    What runs may have sealed something with the former one at the same moment: after a leak restart Berth and rotate
    again, then that key opens nothing any more. Keep the new file with your backups.
    """
    with open_house() as house:
        with house.store.write() as session:
            sealing.reseal(session, known=seal_of(house.settings).known)    # none needs the key that goes
        add_data_key(house.settings)
        with house.store.write() as session:
            count = sealing.reseal(session, known=seal_of(house.settings).known)
    print(f"new key in {house.settings.state_dir / 'data_key'}; {count} secrets sealed with it")


@command.command()
def forget() -> None:
    """Forget secrets whose key is lost: the agent reads those of workspaces back from the workspaces themselves."""
    with open_house() as house:
        load_data_keys(house.settings)
        with house.store.write() as session:
            count = sealing.forget(session, known=seal_of(house.settings).known)
    print(f"{count} workspaces' secrets forgotten; the agent reads them back" if count else "no secret is lost")
