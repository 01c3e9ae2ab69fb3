"""The same hub for trying, on this machine alone: ``jupyterhub -f classroom/jupyterhub/demo_config.py``.

Anybody comes in under any name with the password that it prints; ``teacher``, with a longer one, leads the
live room. All servers run under the account that has started the hub, without limits, and nothing is kept.
"""

import atexit
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

c = get_config()  # type: ignore[name-defined]  # noqa: F821
load_subconfig(str(Path(__file__).with_name("jupyterhub_config.py")))  # type: ignore[name-defined]  # noqa: F821

from classroom.room.config import add_to  # noqa: E402
from tools.ports import free_port, free_ports  # noqa: E402

# Short: sockets lie below it, whose paths may have 107 bytes.
homes = tempfile.mkdtemp(prefix="amp-hub-", dir="/tmp")
hub, proxy = free_ports(2)
atexit.register(shutil.rmtree, homes, ignore_errors=True)

c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = os.environ.get("AMP_DEMO_PASSWORD") or secrets.token_urlsafe(8)
c.SharedPasswordAuthenticator.admin_password = secrets.token_urlsafe(32)
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"teacher"}

c.JupyterHub.bind_url = f"http://127.0.0.1:{os.environ.get('AMP_DEMO_PORT', '8000')}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.pid_file = f"{homes}/.proxy.pid"
c.JupyterHub.db_url = "sqlite:///:memory:"
c.JupyterHub.cookie_secret = secrets.token_bytes(32)
c.JupyterHub.cleanup_servers = True
c.JupyterHub.log_level = "WARN"

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = f"{homes}/{{username}}"
if os.geteuid() == 0:
    c.Spawner.args = ["--KernelManager.transport=ipc", "--allow-root"]

add_to(c, teachers=["teacher"], port=free_port())
print(f"The hub answers at {c.JupyterHub.bind_url} in a few seconds; Ctrl-C ends it.", file=sys.stderr)
print(f"Any name, password {c.SharedPasswordAuthenticator.user_password}", file=sys.stderr)
print(f"teacher, password {c.SharedPasswordAuthenticator.admin_password}", file=sys.stderr)
