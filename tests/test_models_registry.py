"""The registry file: what is refused and how it is said, and the rules that the shipped one keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.registry import PACKAGE_DIRECTORY, Registry, Role
from models.store_build import builder_version
from models.store_errors import ModelError, ModelFault

SHA = "0" * 64
HEAD = 'role = "speech"\nsummary = "s"\nlicence = "MIT"\ncredit = "c"\n'
ARCHIVE = '[archives.a]\nkind = "pypi"\npackage = "p"\nversion = "1"\nsize_bytes = 9\n'
FILES = f'files = [{{ name = "m.bin", sha256 = "{SHA}", size_bytes = 3 }}]\n'
MEMBERS = 'members = [{ archive = "a", patterns = ["p/m.bin"] }]\n'
GOOD = f"{ARCHIVE}[models.m]\n{HEAD}{MEMBERS}{FILES}"


def test_a_correct_registry_is_read() -> None:
    model = Registry.parse(GOOD).get("m")
    assert (model.role, model.source, model.archives, model.size_bytes) == (Role.SPEECH, "archive", ("a",), 3)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD.replace('licence = "MIT"', 'license = "MIT"'), "models.m.license"),
        (GOOD.replace("size_bytes = 3", "size = 3"), "models.m.files.0.size"),
        (GOOD.replace('version = "1"', 'version = "1"\nmirror = "x"'), "archives.a.mirror"),
        (GOOD + "[extras]\n", "extras"),
        (GOOD.replace('role = "speech"', 'role = "speach"'), "models.m.role"),
        (GOOD.replace(SHA, "abc"), "'abc' is not a sha256"),
        (GOOD.replace(SHA, "A" * 64), "models.m.files.0.sha256"),
        (GOOD.replace('"m.bin", sha', '"../m.bin", sha'), "'../m.bin' is not a plain relative path"),
        (GOOD.replace('"p/m.bin"', '"/etc/m.bin"'), "models.m.members.0.patterns.0"),
        (GOOD.replace(f'sha256 = "{SHA}", ', ""), "'m.bin' needs sha256"),
        (GOOD.replace(MEMBERS, ""), "exactly one of"),
        (GOOD + '[models.m.hub]\nrepository = "r"\nrevision = "v"\n', "exactly one of"),
        (GOOD.replace('archive = "a"', 'archive = "b"'), "no archive 'b'"),
        (GOOD + ARCHIVE.replace("archives.a", "archives.z"), "archives.z: no model uses it"),
        (GOOD.replace("models.m]", "models.M]"), "models.M"),
        (GOOD.replace("size_bytes = 9", 'size_bytes = "9"'), "archives.a.size_bytes"),
        (GOOD + "[", "not TOML"),
        (GOOD.replace("[models.m]", '[models.m]\nname = "other"'), "models.m.name"),
        (
            GOOD + f'[models.b]\n{HEAD}build = {{ function = "x:y", inputs = ["q"], approx_size_bytes = 1 }}\n',
            "no model 'q'",
        ),
        (
            GOOD + f'[models.b]\n{HEAD}build = {{ function = "x:y", inputs = ["b"], approx_size_bytes = 1 }}\n',
            "built from itself",
        ),
        (
            GOOD + f'[models.b]\n{HEAD}{FILES}build = {{ function = "x:y", inputs = ["m"], approx_size_bytes = 1 }}\n',
            "'m.bin' is built here",
        ),
    ],
)
def test_a_faulty_registry_is_refused_and_the_fault_named(text: str, named: str) -> None:
    with pytest.raises(ModelError) as caught:
        Registry.parse(text)
    assert caught.value.code is ModelFault.BAD_REGISTRY
    assert named in caught.value.message


@given(st.text(min_size=1, max_size=20))
def test_no_file_name_leaves_its_directory(name: str) -> None:
    quoted = "".join(f"\\U{ord(c):08X}" for c in name if not 0xD800 <= ord(c) <= 0xDFFF)
    try:
        registry = Registry.parse(GOOD.replace('"m.bin", sha', f'"{quoted}", sha'))
    except ModelError:
        return
    file = registry.get("m").files[0].name
    root = PACKAGE_DIRECTORY / "base"
    inside = (root / file).resolve() if "\0" not in file else root / "x"
    assert inside.is_relative_to(root.resolve())
    assert inside != root.resolve()


def test_an_unknown_model_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ModelError) as caught:
        Registry.load().get("wisper-base")
    assert caught.value.code is ModelFault.UNKNOWN_MODEL
    assert "'wisper-base'" in caught.value.message
    assert "whisper-base" in caught.value.cure


def test_inputs_come_before_what_is_built_from_them() -> None:
    build = 'build = {{ function = "x:y", inputs = {inputs}, approx_size_bytes = 1 }}\n'
    registry = Registry.parse(
        GOOD
        + f"[models.c]\n{HEAD}{build.format(inputs=['b', 'm'])}"
        + f"[models.b]\n{HEAD}{build.format(inputs=['m'])}"
    )
    assert registry.with_inputs(["c"]) == ("m", "b", "c")


class TestShippedRegistry:
    """What ``models/registry.toml`` promises."""

    def test_each_role_of_the_live_path_has_a_default(self) -> None:
        roles = {model.role for model in Registry.load() if model.default}
        assert {Role.SPEECH, Role.SPEAKER, Role.LANGUAGE_MODEL} <= roles

    def test_the_default_set_needs_no_hub(self) -> None:
        registry = Registry.load()
        needed = registry.with_inputs(list(registry.default_names()))
        assert [name for name in needed if registry.get(name).source == "hub"] == []

    def test_every_downloaded_file_has_a_hash(self) -> None:
        for model in Registry.load():
            if model.build is None:
                assert [file.name for file in model.files if file.sha256 is None] == [], model.name

    def test_hub_revisions_are_commits_since_a_branch_can_move(self) -> None:
        for model in Registry.load():
            if model.hub is not None:
                assert len(model.hub.revision) == 40, model.name

    @pytest.mark.parametrize("name", [model.name for model in Registry.load() if model.build is not None])
    def test_every_builder_has_a_version(self, name: str) -> None:
        build = Registry.load().get(name).build
        assert build is not None
        assert builder_version(build)

    def test_shipped_weights_are_in_the_package(self) -> None:
        for model in Registry.load():
            if model.repo is not None:
                for file in model.files:
                    path = PACKAGE_DIRECTORY / model.repo.directory / file.name
                    assert path.stat().st_size == file.size_bytes, path
