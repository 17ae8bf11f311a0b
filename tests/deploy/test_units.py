"""The generated systemd units: what they hold, and what systemd itself says of them."""

from __future__ import annotations

import getpass
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

from panacea.cli import run_command_line
from panacea.deploy.deployment import Deployment


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    folder = tmp_path_factory.mktemp("units") / "my fed"
    words = ["data=fl60", "method=fedavg", "rounds=2", "novel=0", "--clients", "2", "--quiet"]
    assert run_command_line(["federate", "init", str(folder), *words]) == 0
    return Deployment(folder)


def test_units_hold_what_they_are_given(deployment: Deployment) -> None:
    server, proxy = (deployment.units / f"panacea-{name}.service" for name in ("server", "proxy"))
    assert f'federate server "{deployment.folder.resolve()}"\n' in server.read_text()  # it has a space
    for unit in (server, proxy):
        assert f"\nUser={getpass.getuser()}\n" in unit.read_text()
    client = (deployment.client("0") / "panacea-client.service").read_text()
    assert "\nUser=USER\n" in client
    assert 'federate client "FOLDER"\n' in client
    assert f"\nuser {getpass.getuser()};\n" in deployment.proxy.read_text()
    assert "five seconds" in deployment.readme.read_text()


HARDENED = {
    "NoNewPrivileges": "yes", "ProtectSystem": "full", "RestrictNamespaces": "yes", "RestrictSUIDSGID": "yes",
    "ProtectKernelModules": "yes", "LockPersonality": "yes", "UMask": "0077", "Restart": "always",
}  # fmt: skip


def units(deployment: Deployment) -> dict[str, Path]:
    found = {name: deployment.units / f"panacea-{name}.service" for name in ("server", "proxy")}
    return found | {"client": deployment.client("0") / "panacea-client.service"}


@pytest.mark.parametrize("name", ["server", "proxy", "client"])
def test_units_are_whole(deployment: Deployment, name: str) -> None:
    parser = ConfigParser(interpolation=None, delimiters="=")  # strict: no key twice
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(units(deployment)[name])
    assert parser.sections() == ["Unit", "Service", "Install"]
    service = dict(parser["Service"])
    assert HARDENED.items() <= service.items()
    program, *words = shlex.split(service["ExecStart"])
    if name == "proxy":
        assert [program, *words] == ["nginx", "-c", str(deployment.proxy.resolve()), "-g", "daemon off;"]
        assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == "CAP_NET_BIND_SERVICE"
        assert "RestartPreventExitStatus" not in service  # nginx ends with 1, whatever is wrong
    else:
        assert program == str(Path(sys.executable).parent / "panacea")
        assert words[:2] == ["federate", name]
        assert service["CapabilityBoundingSet"] == ""
        assert service["RestartPreventExitStatus"] == "2"  # a wrong request: `RequestError`
        assert service["SuccessExitStatus"] == "130"  # after SIGTERM: `systemctl stop` is no failure
        assert service["KillMode"] == "mixed"
    assert parser["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["server", "proxy", "client"])
def test_systemd_has_nothing_to_say_of_units(deployment: Deployment, tmp_path: Path, name: str) -> None:
    unit = Path(shutil.copy(units(deployment)[name], tmp_path))
    if name != "proxy":  # where panacea is installed is for the one to see to who runs the tests
        program = shlex.split(unit.read_text().partition("ExecStart=")[2].splitlines()[0])[0]
        unit.write_text(unit.read_text().replace(program, sys.executable))
    elif shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") is None:
        pytest.skip("nginx is not installed")
    command = ["systemd-analyze", "verify", str(unit)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert [line for line in found.stderr.splitlines() if unit.name in line] == []
