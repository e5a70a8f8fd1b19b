"""JupyterLab in a workspace. Given as --config, so that files in a shared home cannot change it."""

import hashlib
import os
from pathlib import Path

c = get_config()  # noqa: F821  (Jupyter runs this file with it)

token = Path("/etc/berth/token").read_text()
if len(token) < 16 or token != token.strip():
    # An empty token would open the server to everybody; a newline would be part of the token.
    raise SystemExit("/etc/berth/token: need 16 characters or more, without white space around them")

# Here, not in argv or the environment, which `ps` and `docker inspect` show.
c.IdentityProvider.token = token
# A member's workspaces share a home and must not share cookies. Derived, so that it lies nowhere,
# survives a restart and ends with the token.
c.ServerApp.cookie_secret = hashlib.sha256(b"berth cookie " + token.encode()).digest()
c.ServerApp.use_redirect_file = False
c.ServerApp.open_browser = False

c.ServerApp.ip = "0.0.0.0"
c.ServerApp.port = 8888
c.ServerApp.port_retries = 0
c.ServerApp.allow_remote_access = True
c.ServerApp.root_dir = os.environ["HOME"]
# Requests are logged as INFO; the paths people open are theirs.
c.Application.log_level = "WARN"

c.ServerApp.terminado_settings = {"shell_command": ["/bin/bash", "-l"]}
# Notebooks run in /opt/berth/py (the kernel "python3"), never in Jupyter's own Python.
c.KernelSpecManager.ensure_native_kernel = False

# Start-up time, and no calls to the outside that nobody asked for.
c.ServerApp.jpserver_extensions = {"jupyter_lsp": False, "notebook_shim": False}
c.LabApp.extension_manager = "readonly"
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"

c.ServerProxy.servers = {
    "tensorboard": {
        # PyTorch's SummaryWriter writes to ./runs unless told otherwise.
        "command": [
            "/opt/berth/bin/tensorboard",
            "--logdir",
            str(Path.home() / "runs"),
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
            "--path_prefix",
            "{base_url}tensorboard",
        ],
        "absolute_url": True,
        "timeout": 30,
        "launcher_entry": {"title": "TensorBoard (~/runs)"},
    },
}
