"""The hub of a class on one ordinary Linux machine: this file is for the teacher to read and to change.

``python -m classroom.jupyterhub`` runs it, as root. README.md beside it says what each choice means.
"""

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))
from classroom import sizes  # noqa: E402
from classroom.jupyterhub import accounts, spawner  # noqa: E402

c = get_config()  # type: ignore[name-defined]  # noqa: F821

# Who may come in: the accounts of this machine that are in these groups, with their own passwords. For names
# without accounts: NativeAuthenticator. From Moodle or Canvas: LTI13Authenticator. Both are in the README.
c.JupyterHub.authenticator_class = "pam"
c.LocalAuthenticator.allowed_groups = accounts.groups_there("learners", "teachers")
c.LocalAuthenticator.admin_groups = accounts.groups_there("teachers")

# Where the hub is reached. Behind a web server that has a certificate it stays on this machine.
c.JupyterHub.bind_url = "http://127.0.0.1:8000"

# What a learner may take: enough for the hungriest of these lessons.
c.JupyterHub.spawner_class = spawner.LearnerSpawner
c.Spawner.mem_limit = sizes.limit_mib(lessons=sizes.EVERYDAY) * 2**20
c.Spawner.cpu_limit = 2.0

# What a learner finds: an own copy of the lessons, opened at the first.
c.Spawner.cmd = spawner.command()
c.Spawner.notebook_dir = f"~/{spawner.LESSONS}"
c.Spawner.default_url = "/lab/tree/00_start_here.ipynb"

# When a class presses "Start" at once, on a small machine.
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.JupyterHub.concurrent_spawn_limit = 10
c.JupyterHub.active_server_limit = 0  # no limit; `python -m classroom.jupyterhub` says how many fit

# What `python -m classroom.jupyterhub` decides: where the hub keeps its files, and the proxy it has started,
# which lives on when the hub is killed, so that learners notice nothing.
if "AMP_CLASSROOM_STATE" in os.environ:
    state = Path(os.environ["AMP_CLASSROOM_STATE"])
    c.JupyterHub.db_url = f"sqlite:///{state}/hub/jupyterhub.sqlite"
    c.JupyterHub.cookie_secret_file = f"{state}/hub/cookie_secret"
    c.LearnerSpawner.notes = f"{state}/notes"
    c.LearnerSpawner.cgroup = os.environ["AMP_CLASSROOM_CGROUP"]
    c.LearnerSpawner.kernels = os.environ["AMP_CLASSROOM_KERNELS"]
    c.JupyterHub.bind_url = os.environ["AMP_CLASSROOM_URL"]
    c.JupyterHub.hub_bind_url = os.environ["AMP_CLASSROOM_HUB_URL"]
    c.ConfigurableHTTPProxy.api_url = os.environ["AMP_CLASSROOM_PROXY_API"]
    c.ConfigurableHTTPProxy.should_start = False

# More of your own, such as the live room's service: `--add FILE`, files like this one.
for file in filter(None, os.environ.get("AMP_CLASSROOM_ADD", "").split(os.pathsep)):
    load_subconfig(file)  # type: ignore[name-defined]  # noqa: F821
