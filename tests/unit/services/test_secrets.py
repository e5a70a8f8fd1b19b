import re
import subprocess

from webapp.domain.sshkeys import parse_public_keys
from webapp.services.ids import new_id
from webapp.services.secrets import new_secrets


def test_token_has_no_newline_and_fits_an_address():
    token = new_secrets().jupyter_token
    assert len(token) >= 43 and set(token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def test_host_key_is_a_pair_that_ssh_keygen_reads(tmp_path):
    secrets = new_secrets()
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(secrets.host_private_key)
    listed = subprocess.run(["ssh-keygen", "-l", "-f", file], check=True, capture_output=True, text=True).stdout
    public = subprocess.run(["ssh-keygen", "-y", "-f", file], check=True, capture_output=True, text=True).stdout
    assert parse_public_keys(secrets.host_public_key)[0].fingerprint in listed
    assert public.split()[:2] == secrets.host_public_key.split()


def test_two_workspaces_share_nothing():
    one, two = new_secrets(), new_secrets()
    assert one.jupyter_token != two.jupyter_token and one.host_private_key != two.host_private_key


def test_secrets_are_not_in_the_repr():
    secrets = new_secrets()
    assert secrets.jupyter_token not in repr(secrets) and "PRIVATE" not in repr(secrets)


def test_ids_fit_into_names_of_an_engine():
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(re.fullmatch("[a-z0-9]{12}", one) for one in ids)
