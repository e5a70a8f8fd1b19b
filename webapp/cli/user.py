"""`berth user`"""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from webapp.cli.house import ACTOR, House, fields, now, open_house, pick
from webapp.cli.output import json_option, show, show_document
from webapp.services import people
from webapp.store.reads import people as reads
from webapp.store.tables import Role

_stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input, for scripts.")


@click.group(name="user")
def command() -> None:
    """Members: add, list, password, invite."""


@command.command()
@click.argument("username")
@click.option("--name", "display_name", help="Name as others see it; default: the user name.")
@click.option("--admin", is_flag=True, help="May administer the house.")
@_stdin
def add(username: str, display_name: str | None, admin: bool, password_stdin: bool) -> None:
    """Make a member. Asks for the password; “berth user invite” lets people choose their own."""
    with open_house() as house, house.store.write() as session:
        member = people.create_member(
            session, ACTOR, username=username, display_name=display_name or username,
            password=_password(password_stdin), role=_role(admin), now=now())
        print(f"{member.username} made with uid {member.uid}")


@command.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """Show all members."""
    with open_house() as house:
        rows = _members(house)
    show([fields(row, "username", "display_name", "is_admin", "uid", "teams", "keys", "workspaces", "created_at",
                 "deactivated_at") for row in rows], as_json=as_json, empty="No members yet: berth user invite --admin")


@command.command()
@click.argument("username")
@_stdin
def password(username: str, password_stdin: bool) -> None:
    """Set a member's password. Ends all sessions of that person."""
    with open_house() as house:
        member = pick(_members(house), username, by="username", what="user")
        new = _password(password_stdin)
        with house.store.write() as session:
            people.set_password(session, ACTOR, member.id, old=None, new=new, now=now())
    print(f"password of {username} set; all sessions ended")


@command.command()
@click.option("--admin", is_flag=True, help="The new member may administer the house.")
@click.option("--days", type=click.IntRange(1, 90), default=people.INVITE_LIFETIME.days, show_default=True,
              help="How long the link works.")
@json_option
def invite(admin: bool, days: int, as_json: bool) -> None:
    """Print a link that makes one member, once."""
    with open_house() as house, house.store.write() as session:
        until = now() + timedelta(days=days)
        token = people.make_invite(session, ACTOR, role=_role(admin), now=now(), lifetime=timedelta(days=days))
        link = welcome_link(house.settings.url, token)
    if as_json:
        show_document({"link": link, "role": _role(admin).value, "expires_at": until})
    else:
        print(link)


def welcome_link(url: str, token: str) -> str:
    return f"{url}/welcome/{token}"


def _members(house: House) -> tuple[reads.MemberRow, ...]:
    with house.store.read() as session:
        return reads.members(session)


def _role(admin: bool) -> Role:
    return Role.ADMIN if admin else Role.MEMBER


def _password(from_stdin: bool) -> str:
    """Never an argument: those are in the process list and in the shell's history."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
