"""What a site keeps of compiled programs: nothing that follows from rows, and for its own eyes."""

import shutil
import stat

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sites_on_disk import NAMES, make_sites

from tacit.errors import InvalidArgument
from tacit.federated.deploy import answer_once, compilation_cache, load_study
from tacit.federated.protocol import task_fields
from tacit.federated.settings import SiteSettings
from tacit.privacy.gate import compilation_cache_in


def rights(folder):
    return stat.S_IMODE(folder.stat().st_mode)


def kept(folder):
    """The names of programs, which are digests of all that is in them."""
    return {each.name for each in folder.iterdir()}


def written(folder, rows, scheme):
    """What a site with so many rows keeps after it has answered a task."""
    settings = SiteSettings.from_file(make_sites(folder, scheme)["north"])
    np.savetxt(settings.data, np.ones((rows, 3)), delimiter=",")
    study = load_study(settings.study)
    task, agreed = study.server().tasks(NAMES)["north"], study.agreement.text
    jax.clear_caches()  # as in a process of its own
    assert "change" in answer_once(settings, task_fields(task, agreed=agreed))
    names = kept(settings.ledger.with_suffix(".cache"))
    shutil.rmtree(folder)  # the next one is in the same place, whose name is in a digest
    return names


@pytest.mark.parametrize("scheme", ["statistics", "server"])
def test_what_is_kept_is_the_same_for_neighbours(tmp_path, scheme):
    one = written(tmp_path / "sites", 30, scheme)
    assert one
    assert written(tmp_path / "sites", 31, scheme) == one


def test_nothing_is_kept_where_nothing_should_be(tmp_path):
    """Also if whoever runs the site has told JAX of a place for programs."""
    before = jax.config.jax_compilation_cache_dir
    with compilation_cache(tmp_path / "own"):
        jax.jit(lambda x: x * 3.0)(jnp.ones(3))
        some = kept(tmp_path / "own")
        with compilation_cache_in(None):
            jax.jit(lambda x: x * 5.0)(jnp.ones(5))
        assert kept(tmp_path / "own") == some
        jax.jit(lambda x: x * 7.0)(jnp.ones(7))
        assert kept(tmp_path / "own") > some
    assert jax.config.jax_compilation_cache_dir == before


def test_the_folder_is_for_its_owner_and_an_open_one_is_mended(tmp_path):
    folder = tmp_path / "programs"
    with compilation_cache(folder):
        assert rights(folder) == 0o700
    folder.chmod(0o755)
    (folder / "jit_rows-0123-cache").write_bytes(b"of another's making, or with shapes of rows")
    (folder / "notes").write_text("not ours")
    with compilation_cache(folder):
        assert rights(folder) == 0o700
        assert kept(folder) == {"notes"}


def test_a_folder_that_is_elsewhere_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "programs").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").touch()
    for place in ("programs", "file"):
        with (
            pytest.raises(InvalidArgument, match="must belong to the user"),
            compilation_cache(tmp_path / place),
        ):
            pass
