"""`panacea federate`: the same experiment between machines. Needs the extra `federation` (Flower)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panacea.cli.root import Arguments, AsJson, Debug, Fresh, Group, PlainCommand, Quiet, app

__all__ = ["add", "client", "federate", "init", "local", "renew", "server", "status", "submit"]

federate = typer.Typer(
    cls=Group,
    help="The same experiment as a real federation between machines: data stay with the clients.\n\n"
    "Example: panacea federate local data=fl60 method=panacea rounds=3 --clients 6",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(federate, name="federate")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the deployment's folder", show_default=False)]
Deadline = Annotated[float, typer.Option("--deadline", help="seconds a round waits for its clients")]
Insecure = Annotated[bool, typer.Option("--insecure", help="no TLS and no keys; on the loopback interface only")]


@federate.command(cls=PlainCommand)
def init(
    folder: Folder,
    arguments: Arguments = None,
    clients: Annotated[
        str | None,
        typer.Option("--clients", help="how many of the data's clients, or names: a,b,c", show_default=False),
    ] = None,
    names: Annotated[Path | None, typer.Option("--names", help="file with a client's name in each line")] = None,
    task: Annotated[
        Path | None, typer.Option("--task", help="YAML file with kind, inputs, classes; where data are not at hand")
    ] = None,
    public: Annotated[
        str | None,
        typer.Option("--public", help="host:port that clients connect to (localhost:9443; if insecure, the server's)"),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="port of the server behind the proxy")] = 9092,
    deadline: Deadline = 60.0,
    insecure: Insecure = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a ready deployment: server, a folder for every client, certificates, keys, units, proxy, README.

    With data at hand every client's folder gets its own samples. With --task and names, data stay where they are.

    Example: panacea federate init fed data=fl60 method=panacea rounds=3 --clients 6 --public fed.example.org:9443
    """
    from panacea.cli.federating_setup import write  # noqa: PLC0415

    write(
        folder, arguments or [], clients, names, task,
        {"public": public, "port": port, "deadline": deadline, "insecure": insecure}, as_json=as_json, quiet=quiet,
    )  # fmt: skip


@federate.command(cls=PlainCommand)
def server(folder: Folder, quiet: Quiet = False, debug: Debug = False) -> None:
    """Run the server of a deployment until Ctrl-C; a run that was under way goes on.

    Example: panacea federate server fed
    """
    from panacea.cli.federating_runs import keep_server  # noqa: PLC0415

    keep_server(folder, quiet=quiet)


@federate.command(cls=PlainCommand)
def client(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the client's own folder", show_default=False)],
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a client until Ctrl-C: connects, answers orders, comes back after anything.

    Example: panacea federate client fed/clients/site-1
    """
    from panacea.cli.federating_runs import keep_client  # noqa: PLC0415

    keep_client(folder, quiet=quiet)


@federate.command(cls=PlainCommand)
def submit(folder: Folder, quiet: Quiet = False, debug: Debug = False) -> None:
    """Start the deployment's run, or go on with it after a failure.

    Example: panacea federate submit fed
    """
    from panacea.cli.federating_runs import want_run  # noqa: PLC0415

    want_run(folder, quiet=quiet)


@federate.command(cls=PlainCommand)
def status(folder: Folder, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show the run, its clients and who is connected.

    Example: panacea federate status fed
    """
    from panacea.cli.federating_runs import show_status  # noqa: PLC0415

    show_status(folder, as_json=as_json)


@federate.command(cls=PlainCommand)
def add(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the new client's name", show_default=False)],
    links: Annotated[str | None, typer.Option("--links", help="clients it is related to: names a,b")] = None,
    features: Annotated[str | None, typer.Option("--features", help="its own: 0.1,0.2; if clients have some")] = None,
    group: Annotated[int | None, typer.Option("--group", help="its group's number; where clients have groups")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="a new key for a client that is there already")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Let a new client join, with its links in the graph: its folder, its key, its place in the roster.

    Example: panacea federate add fed site-7 --links site-1,site-3
    """
    from panacea.cli.federating_setup import join  # noqa: PLC0415

    join(folder, name, {"links": links, "features": features, "group": group}, replace=replace, quiet=quiet)


@federate.command(cls=PlainCommand)
def renew(folder: Folder, quiet: Quiet = False, debug: Debug = False) -> None:
    """Sign a new certificate for the server; clients need nothing.

    Example: panacea federate renew fed
    """
    from panacea.cli.federating_setup import renew_certificate  # noqa: PLC0415

    renew_certificate(folder, quiet=quiet)


@federate.command(cls=PlainCommand)
def local(
    arguments: Arguments = None,
    clients: Annotated[int | None, typer.Option("--clients", help="how many", show_default=False)] = None,
    deadline: Deadline = 60.0,
    insecure: Insecure = False,
    keep: Annotated[bool, typer.Option("--keep", help="keep the deployment's folder, with logs and keys")] = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Try a whole federation on this machine: server, clients, TLS and keys; ends with the table of `panacea run`.

    Example: panacea federate local data=fl60 method=panacea rounds=3 --clients 6
    """
    from panacea.cli.federating_local import try_here  # noqa: PLC0415

    try_here(
        arguments or [], clients, deadline=deadline, insecure=insecure, keep=keep, fresh=fresh, as_json=as_json,
        quiet=quiet,
    )  # fmt: skip
