"""Training data and calibration: no leak between parts, labels that match the sound, thresholds that hold."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.evidence import DamageKind
from models.damage_cnn import KINDS, step_span
from models.training import cards, corpus, damage, devices, proximity, rooms, sounds
from models.training.corpus import Part


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus of syllable-like noise under the real corpus's names."""
    root = tmp_path_factory.mktemp("corpus")
    rows = ["path\tset\tspeaker\ttranscript\tcondition\tduration_s\tsample_rate\tsource_repo\tlicense\tnote"]
    rng = np.random.default_rng(0)

    def add(path: str, name: str, speaker: str, seconds: float) -> None:
        (root / "audio" / path).parent.mkdir(parents=True, exist_ok=True)
        time_s = np.arange(round(seconds * 16_000)) / 16_000
        syllables = np.maximum(0.0, np.sin(2 * np.pi * rng.uniform(2.5, 4.0) * time_s)) ** 2
        phrases = np.sin(2 * np.pi * 0.4 * time_s + rng.uniform(0, 6)) > -0.6
        voice = sounds.coloured_noise(rng, len(time_s), -6.0) * syllables * phrases
        soundfile.write(root / "audio" / path, 0.1 * voice + 1e-4 * rng.normal(size=len(voice)), 16_000)
        rows.append(f"{path}\t{name}\t{speaker}\t\tnear\t{seconds}\t16000\t\t\t")

    for i in range(24):
        add(f"librispeech_cohort/{i}/a.flac", "librispeech_cohort", str(i), 6.0)
        add(f"alphanumeric/R_{i}/a.flac", "alphanumeric", f"R_{i}", 4.0)
    for stem in ("city", "kitchen", "train", "coffee-shop", "wind"):
        add(f"noise/x/{stem}.flac", "noise", "x", 5.0)
    for stem in ("Hungarian_Dance", "Kevin_MacLeod"):
        add(f"music/m/{stem}.flac", "music", "m", 5.0)
    (root / "audio" / "alphanumeric" / "suspect_same_voice.tsv").write_text(
        "cluster\tresponse_id\nc1\tR_1\nc1\tR_2\nc1\tR_3\n", encoding="utf-8"
    )
    (root / "audio" / "manifest.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return root


def test_no_voice_noise_or_piece_of_music_serves_two_parts(folder: Path) -> None:
    parts: dict[tuple[str, str], set[Part]] = {}
    for recording in corpus.recordings(folder):
        named = recording.path.stem if recording.set_name in ("noise", "music") else recording.speaker
        key = "c1" if named in ("R_1", "R_2", "R_3") else named
        parts.setdefault((recording.set_name, key), set()).add(recording.part)
    assert all(len(found) == 1 for found in parts.values())
    assert {part for found in parts.values() for part in found} == set(Part)


def test_a_folder_without_a_manifest_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"manifest\.tsv"):
        corpus.data_folder(tmp_path)


def test_no_folder_at_all_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICEGATE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="VOICEGATE_DATA"):
        corpus.data_folder()


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_any_drawn_device_keeps_length_and_range_and_repeats_itself(seed: int) -> None:
    x = np.random.default_rng(1).normal(0.0, 0.1, 24_000)
    y = devices.through_device(x, np.random.default_rng(seed))
    assert y.shape == x.shape
    assert np.isfinite(y).all()
    assert np.abs(y).max() <= 1.0
    assert np.array_equal(y, devices.through_device(x, np.random.default_rng(seed)))


@pytest.mark.parametrize("slope", [0.0, -3.0, -6.0])
def test_coloured_noise_falls_by_its_slope(slope: float) -> None:
    power = np.abs(np.fft.rfft(sounds.coloured_noise(np.random.default_rng(0), 1 << 18, slope))) ** 2
    freqs = np.fft.rfftfreq(1 << 18, 1 / 16_000)
    octave = [power[(freqs >= f) & (freqs < f * 1.1)].mean() for f in (500.0, 1000.0, 2000.0)]
    assert np.diff(10 * np.log10(octave)) == pytest.approx([slope, slope], abs=0.4)


@pytest.fixture(scope="module")
def damage_renderer(folder: Path) -> damage.Renderer:
    room = rooms.Room.with_rt60((4.0, 3.5, 2.5), 0.4, np.random.default_rng(0))
    bank = rooms.impulse_responses(room, (1.0, 1.0, 1.5), [(3.0, 2.5, 1.0)], 0)
    return damage.Renderer(folder, Part.TRAIN, bank, seed=3, masked=1.0, scenes=damage.COMMON)


@pytest.mark.slow
def test_damage_labels_lie_where_the_masks_are_and_nowhere_else(damage_renderer: damage.Renderer) -> None:
    seen: set[DamageKind] = set()
    for index in range(16):
        clip = damage_renderer.clip(index)
        assert len(clip.target) == -(-len(clip.bands_db) // 2)
        for step, label in enumerate(clip.target):
            span = step_span(step, step + 1, 64_000)
            inside = [m for m in clip.masks if m.start < span.end_sample - 16 and span.start_sample + 16 < m.end]
            if label > 0:
                assert KINDS[label - 1] in {m.kind for m in inside}
            elif label == 0:
                assert not inside
        seen |= {m.kind for m in clip.masks}
    assert len(seen) >= 3


@pytest.mark.slow
def test_digital_silence_is_silent_in_the_rendered_clip(damage_renderer: damage.Renderer) -> None:
    found = 0
    for index in range(60):
        clip = damage_renderer.clip(index)
        for mask in clip.masks:
            if mask.how == "digital" and mask.end - mask.start > 1600:
                frames = slice(mask.start // 160 + 1, mask.end // 160 - 3)
                loudest_band = clip.bands_db[frames].astype(np.float32).max(axis=1)
                # A knock may fall into the cut; it does not fill it.
                assert float(loudest_band.min()) < -100.0
                found += 1
        if found:
            break
    assert found


@pytest.mark.slow
def test_a_short_clip_holds_a_little_speech_alone(folder: Path) -> None:
    room = rooms.Room.with_rt60((4.0, 3.5, 2.5), 0.4, np.random.default_rng(0))
    bank = rooms.impulse_responses(room, (1.0, 1.0, 1.5), [(3.0, 2.5, 1.0)], 0)
    renderer = damage.Renderer(folder, Part.TRAIN, bank, seed=3, masked=0.0, scenes={"short": 1.0})
    shares = []
    for index in range(8):
        level = renderer.clip(index).bands_db.astype(np.float32).max(axis=1)
        shares.append(float(np.mean(level > level.max() - 20.0)))
    assert np.median(shares) < 0.45


@pytest.mark.slow
def test_the_same_seed_renders_the_same_clips(folder: Path, damage_renderer: damage.Renderer) -> None:
    first, again = damage_renderer.clip(5), damage_renderer.clip(5)
    assert np.array_equal(first.bands_db, again.bands_db)
    bank = proximity.room_bank(1, 4, rooms.Method.HYBRID)
    recipe = proximity.Recipe(Part.TRAIN, 1, measured=0.0, switches=0.5)
    one, two = (proximity.Renderer(folder, recipe, bank, 9) for _ in range(2))
    for index in range(8):
        assert np.array_equal(one.clip(index).bands_db, two.clip(index).bands_db)


@pytest.mark.slow
def test_a_clip_with_two_talkers_carries_both_labels_on_their_own_sides(folder: Path) -> None:
    bank = proximity.room_bank(1, 4, rooms.Method.HYBRID)
    renderer = proximity.Renderer(folder, proximity.Recipe(Part.TRAIN, 1, measured=0.0, switches=1.0), bank, 9)
    for index in range(6):
        clip = renderer.clip(index)
        spoken = clip.label[clip.weight > 0]
        assert set(np.unique(spoken)) == {0.0, 1.0}
        assert int(np.abs(np.diff(spoken)).sum()) == 1, "one change of talker"


@pytest.mark.parametrize(("distance_m", "label"), [(0.1, 1.0), (0.5, 1.0), (1.2, 0.0), (4.0, 0.0)])
def test_distance_labels_at_their_ends(distance_m: float, label: float) -> None:
    assert proximity.label_of_distance(distance_m) == label


def test_distance_labels_fall_between_near_and_far() -> None:
    labels = [proximity.label_of_distance(d) for d in np.linspace(0.5, 1.2, 20)]
    assert all(a > b for a, b in itertools.pairwise(labels))


@pytest.mark.parametrize("spread", [0.5, 2.0, 6.0])
def test_thresholds_keep_the_stated_error_whether_classes_overlap_or_not(spread: float) -> None:
    rng = np.random.default_rng(0)
    near = rng.random(4000) < 0.5
    clips = tuple(
        proximity.Clip(
            np.zeros((1, 48), np.float16), np.zeros(1, np.float32), np.ones(1, np.float32), 1.0, bool(n), 0.3, 0.0, 30.0
        )
        for n in near
    )
    scored = [
        proximity.Scored(np.where(near, spread, -spread) + rng.normal(size=4000), near, duration_s, clips)
        for duration_s in (0.6, 2.5)
    ]
    calibration = proximity.calibrate(scored)
    assert calibration.far_below <= calibration.near_at
    for s in scored:
        p = calibration.probability(s.logit, s.duration_s)
        assert np.mean(p[~s.near] >= calibration.near_at) <= 0.0105
        assert np.mean(p[s.near] < calibration.far_below) <= 0.0105
    middle = calibration.probability(scored[0].logit, 0.6)
    assert float(np.mean(middle)) == pytest.approx(float(np.mean(near)), abs=0.05)


def test_measurements_replace_only_what_lies_between_the_marks(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text(f"# Title\n\n{cards.BEGIN}\nold\n{cards.END}\n\nLimits.\n", encoding="utf-8")
    cards.write_measured(card, ["| a |", "| 1 |"])
    text = card.read_text(encoding="utf-8")
    assert "old" not in text
    assert "| 1 |" in text
    assert text.startswith("# Title\n")
    assert text.endswith("\n\nLimits.\n")


def test_a_card_without_marks_is_not_overwritten(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text("my own words\n", encoding="utf-8")
    with pytest.raises(ValueError, match="marks"):
        cards.write_measured(card, ["x"])
    assert card.read_text(encoding="utf-8") == "my own words\n"


@pytest.mark.slow
@pytest.mark.parametrize("module", [proximity, damage])
def test_export_computes_what_torch_does(module: object, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from models.training.onnx_export import export

    torch.manual_seed(0)
    network = (proximity if module is proximity else damage).build_network().eval()
    assert export(network, tmp_path / "net.onnx") < 1e-3
