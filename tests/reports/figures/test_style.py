"""Every policy and codec has one style, and it follows from the registry."""

from types import SimpleNamespace

import pytest

from qccf.policies.registry import POLICIES
from qccf.quantization.registry import CODECS
from qccf.reports.figures.style import Style, Styles

POLICY_COLOURS = {
    "qccf": "#0072B2", "no-quantization": "#7F7F7F", "channel-allocate": "#E69F00", "principle": "#D55E00",
    "same-size": "#009E73", "fixed-bits": "#CC79A7",
}  # fmt: skip
CODEC_COLOURS = {
    "model": "#0072B2", "update": "#D55E00", "block": "#E69F00", "update+block": "#CC79A7",
    "model+entropy": "#56B4E9", "update+entropy": "#009E73", "block+entropy": "#7F7F7F",
    "update+block+entropy": "#000000", "sparse": "#F0E442",
}  # fmt: skip


def run(policy: str = "qccf", codec: str = "model") -> SimpleNamespace:
    return SimpleNamespace(policy=policy, codec=codec)


def test_the_colours_of_recorded_figures_stay() -> None:
    styles = Styles()
    assert {name: style.colour for name, style in styles.policies.items()} == POLICY_COLOURS
    assert {name: style.colour for name, style in styles.codecs.items()} == CODEC_COLOURS


def test_a_users_own_entry_gets_a_free_style_the_same_in_every_figure() -> None:
    own = [run(f"my.module:Policy{k}", "my.module:Codec") for k in range(12)]
    styles = Styles(own)
    assert len(set(styles.policies.values())) == len(POLICIES) + 12
    assert len(set(styles.codecs.values())) == len(CODECS) + 1
    assert styles.policies["my.module:Policy0"].colour not in POLICY_COLOURS.values()
    assert Styles(reversed(own)).policies == styles.policies


def test_an_entry_states_its_style_or_takes_the_next_in_registry_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stated(POLICIES["qccf"]):
        colour, marker = "#123456", "v"

    class Unstated(POLICIES["qccf"]):
        """Its parent's colour is not its own."""

    monkeypatch.setitem(POLICIES, "stated", Stated)
    monkeypatch.setitem(POLICIES, "unstated", Unstated)
    styles = Styles()
    assert styles.policies["stated"] == Style("#123456", "v")
    assert styles.policies["unstated"].colour not in {*POLICY_COLOURS.values(), "#123456"}


def test_a_label_of_policy_and_codec_shows_both() -> None:
    styles = Styles()
    assert styles.of("qccf", run()) == styles.policies["qccf"]
    assert styles.of("update", run(codec="update")) == styles.codecs["update"]
    pairs = [(policy, codec) for policy in ("qccf", "same-size") for codec in CODECS]
    shown = {styles.of(f"{policy}, {codec}", run(policy, codec)) for policy, codec in pairs}
    assert len(shown) == 2 * len(CODECS)
