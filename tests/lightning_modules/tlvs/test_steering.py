"""Steering of the tiny model of scenes: what is turned, where, and what is kept."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from lightning_modules.tlvs.adapter import response_steps
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.calibration import answer_loss, caption_losses, steered_logits
from lightning_modules.tlvs.contrastive import ContrastiveLogitsProcessor
from lightning_modules.tlvs.exact_steering import ExactSteering
from lightning_modules.tlvs.extraction import TLVSExtractor
from lightning_modules.tlvs.gate import log_sensitivity
from lightning_modules.tlvs.mlp_steering import vista, vista_vectors, vti
from lightning_modules.tlvs.operator import steer
from lightning_modules.tlvs.response_edits import response_edits
from lightning_modules.tlvs.scene_adapter import TinyVLMAdapter
from lightning_modules.tlvs.sensitivity import entropy, visual_sensitivity
from lightning_modules.tlvs.steering import steering
from lightning_modules.tlvs.steering_method import SteeringMethod
from lightning_modules.tlvs.tiny_vlm import TinyVLM

VOCABULARY, CAPTION, END = 12, 2, 1


def make_adapter(seed: int = 0) -> TinyVLMAdapter:
    torch.manual_seed(seed)
    model = TinyVLM(VOCABULARY, d_model=16, num_layers=3, num_heads=2, max_length=24)
    for block in model.blocks:
        torch.nn.init.normal_(block.attention.output.weight, std=0.5)  # type: ignore[union-attr, arg-type]
    return TinyVLMAdapter(model)


def make_batch(rows: int = 6, words: int = 7, prompt: int = 1, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (rows, words), generator=generator)
    ids[:, 0], ids[:, -1] = CAPTION, END
    ids[0, -3:] = torch.tensor([END, 0, 0])
    return {
        "input_ids": ids,
        "prompt_length": torch.full((rows,), prompt),
        "pixels": torch.rand(rows, 3, 32, 32, generator=generator) * 4,
    }


@pytest.fixture(scope="module")
def adapter() -> TinyVLMAdapter:
    return make_adapter()


@pytest.fixture(scope="module")
def artifact(adapter: TinyVLMAdapter) -> SteeringArtifact:
    found = TLVSExtractor(adapter).fit([make_batch(seed=seed) for seed in range(5)])
    return replace(found, vectors_Ld=8 * found.vectors_Ld)


def test_extraction(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    assert artifact.layers == (0, 1, 2)
    assert artifact.gate_layer == 0
    # five batches of five captions with 6 words to predict and one with 4
    assert artifact.report["steps"] == 5 * (5 * 6 + 4)
    assert artifact.report["sensitivity_correlation"] > 0.3
    steps = TLVSExtractor(adapter).collect([make_batch()])
    batch = make_batch()
    logits, states = response_steps(adapter, batch, adapter.decoder_layers())
    blind_logits, blind = response_steps(adapter, adapter.without_image(batch), adapter.decoder_layers())
    assert torch.equal(steps.difference_LSd, states - blind)
    assert torch.equal(steps.gate_Sd, states[0])
    assert (logits - blind_logits).abs().max() > 1e-3


def test_leaving_the_image_out_and_hiding_it_are_the_same_to_the_words(adapter: TinyVLMAdapter):
    dropped, masked = (TLVSExtractor(adapter, null_mode=mode).collect([make_batch()]) for mode in ("drop", "mask"))
    assert torch.allclose(dropped.difference_LSd, masked.difference_LSd, atol=1e-5)
    noisy = TLVSExtractor(adapter, null_mode="noise").collect([make_batch()])
    assert not torch.allclose(dropped.difference_LSd, noisy.difference_LSd, atol=1e-2)


def test_hidden_images_have_no_influence(adapter: TinyVLMAdapter):
    batch = make_batch() | {"no_image": torch.ones(6, dtype=torch.bool)}
    assert TLVSExtractor(adapter).collect([batch]).sensitivity_S.max() < 1e-6
    with pytest.raises(ValueError, match="does not reach the decoder"):
        TLVSExtractor(adapter).fit([batch])


def test_each_layer_is_turned_by_gate_and_strength(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    batch = make_batch()
    layers = adapter.decoder_layers()
    before, after = [], []
    handles = [layer.register_forward_hook(lambda module, inputs, output: before.append(output)) for layer in layers]
    with steering(adapter, artifact, alpha=0.7) as active:
        handles += [layer.register_forward_hook(lambda module, inputs, output: after.append(output)) for layer in layers]
        adapter.generate(batch, 1)
    for handle in handles:
        handle.remove()
    strength = artifact.gate(before[0][:, -1])
    assert torch.equal(active.strength_Bn, strength[:, None])
    for row in range(3):
        vector = artifact.vectors_Ld[row]
        expected = steer(before[row][:, -1], vector / vector.norm(), 0.7 * vector.norm() * strength)
        assert torch.allclose(after[row][:, -1], expected, atol=1e-6)
        assert torch.equal(after[row][:, :-1], before[row][:, :-1])


def test_the_cache_changes_nothing(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    batch = make_batch()
    with steering(adapter, artifact):
        cached = adapter.generate(batch, 12)
        words = batch["input_ids"][:, :1]
        with torch.no_grad():
            for _ in range(12):
                logits = adapter.model(words, batch["pixels"])
                words = torch.cat([words, logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    for row, response in enumerate(cached):
        length = int((response == END).float().argmax()) + 1 if (response == END).any() else 12
        assert torch.equal(response[:length], words[row, 1 : length + 1])
    assert not torch.equal(cached, adapter.generate(batch, 12)[:, : cached.shape[1]])


def test_given_responses_are_steered_where_they_are_predicted(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    batch = make_batch(prompt=3)
    steered = steered_logits(adapter, batch, artifact)
    plain = adapter.logits(batch)
    mask = adapter.response_mask(batch)
    assert steered.shape == plain[mask].shape
    with steering(adapter, artifact) as active, active.positions.given(mask):
        everywhere = adapter.logits(batch)
    assert torch.equal(everywhere[mask], steered)
    assert torch.equal(everywhere[:, :2], plain[:, :2])
    assert not torch.allclose(steered, plain[mask])


def test_no_strength_no_layers_and_errors_leave_the_model_alone(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    batch = make_batch()
    plain = adapter.logits(batch)
    none = replace(artifact, layers=(), vectors_Ld=artifact.vectors_Ld[:0])
    for parts, alpha in ((artifact, 0.0), (none, 1.0)):
        with steering(adapter, parts, alpha):
            assert torch.equal(adapter.logits(batch), plain)

    def interrupted() -> None:
        with steering(adapter, artifact):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.equal(adapter.logits(batch), plain)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in adapter.model.modules())


def test_the_sign_of_what_is_found_does_not_depend_on_the_decomposition(adapter: TinyVLMAdapter, monkeypatch: pytest.MonkeyPatch):
    batches = [make_batch(seed=seed) for seed in range(3)]
    once = TLVSExtractor(adapter).fit(batches)
    decompose = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda gram: SimpleNamespace(eigenvectors=-decompose(gram).eigenvectors))
    assert torch.allclose(TLVSExtractor(adapter).fit(batches).vectors_Ld, once.vectors_Ld)


def test_calibration_reaches_the_vectors_and_lowers_the_loss(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    captions, questions = make_batch(), make_batch(prompt=5, seed=9)
    before = {name: value.clone() for name, value in adapter.model.state_dict().items()}
    vectors = torch.nn.Parameter(artifact.vectors_Ld / 8)
    optimizer = torch.optim.Adam([vectors], lr=6e-3)
    losses = []
    for _ in range(30):
        parts = replace(artifact, vectors_Ld=vectors)
        terms = [*caption_losses(adapter, captions, parts).values(), answer_loss(adapter, questions, parts)]
        loss = torch.stack([term.mean for term in terms]).sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert min(losses[-5:]) < losses[0]
    assert all(parameter.grad is None for parameter in adapter.model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in adapter.model.state_dict().items())


def test_losses_by_hand(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    batch = make_batch()
    losses = caption_losses(adapter, batch, artifact)
    steps = TLVSExtractor(adapter).collect([batch])
    sensitive = (steps.sensitivity_S + 1e-4).log() > artifact.gate.threshold
    assert sensitive.any()
    assert not sensitive.all()
    mask = adapter.response_mask(batch)
    steered = steered_logits(adapter, batch, artifact).softmax(dim=-1)
    plain = adapter.logits(batch)[mask].softmax(dim=-1)
    targets = batch["input_ids"][:, 1:][mask[:, :-1]]
    expected = -torch.stack([steered[step, target].log() for step, target in enumerate(targets)])[sensitive].mean()
    assert losses["sensitive"].mean.item() == pytest.approx(expected.item(), abs=1e-5)
    divergence = (plain * (plain / steered).log()).sum(dim=-1)[~sensitive].mean()
    assert losses["other"].mean.item() == pytest.approx(divergence.item(), abs=1e-5)
    questions = make_batch(prompt=5)
    mask = adapter.response_mask(questions)
    targets = questions["input_ids"][:, 1:][mask[:, :-1]]
    answers = torch.nn.functional.cross_entropy(steered_logits(adapter, questions, artifact), targets)
    assert answer_loss(adapter, questions, artifact).mean.item() == pytest.approx(answers.item(), abs=1e-6)


def test_an_artifact_comes_back_and_is_the_same_for_the_same_seed(adapter: TinyVLMAdapter, tmp_path: Path):
    for name in ("first", "second"):
        TLVSExtractor(make_adapter()).fit([make_batch()] * 2).save(tmp_path / name)
    files = [sorted((tmp_path / name).iterdir()) for name in ("first", "second")]
    assert [file.name for file in files[0]] == ["steering.json", "steering.safetensors"]
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]
    loaded = SteeringArtifact.load(tmp_path / "first")
    batch = make_batch()
    with steering(adapter, loaded):
        once = adapter.generate(batch, 6)
    with steering(adapter, TLVSExtractor(adapter).fit([make_batch()] * 2)):
        assert torch.equal(adapter.generate(batch, 6), once)


def test_damaged_and_foreign_artifacts_are_refused(adapter: TinyVLMAdapter, artifact: SteeringArtifact, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="calibrate"):
        SteeringArtifact.load(tmp_path)
    artifact.save(tmp_path)
    (tmp_path / "steering.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="damaged"):
        SteeringArtifact.load(tmp_path)
    other = make_adapter(seed=1)
    with pytest.raises(ValueError, match=other.identity()["weights"]), steering(other, artifact):
        pass
    with pytest.raises(ValueError, match="one each"):
        replace(artifact, layers=(0,))
    with pytest.raises(ValueError, match="gate_layer=2"):
        replace(artifact, gate_layer=2)


def test_contrast_uses_the_blind_run_of_the_same_words(adapter: TinyVLMAdapter):
    batch = make_batch()
    found = adapter.generate(batch, 5, ContrastiveLogitsProcessor(adapter, batch, 1.0, 1e-30))
    words = batch["input_ids"][:, :1]
    for step in range(found.shape[1]):
        with torch.no_grad():
            seeing, blind = adapter.model(words, batch["pixels"])[:, -1], adapter.model(words)[:, -1]
        best = (2 * seeing - blind).argmax(dim=-1)
        going = (found[:, :step] != END).all(dim=1)
        assert torch.equal(found[going, step], best[going])
        words = torch.cat([words, found[:, step : step + 1]], dim=1)
    processor = ContrastiveLogitsProcessor(adapter, batch)
    processor(batch["input_ids"][:, :1], torch.zeros(6, VOCABULARY))
    with pytest.raises(ValueError, match="new processor"):
        processor(batch["input_ids"][:, :4], torch.zeros(6, VOCABULARY))


def test_edits_of_the_feed_forward_parts(adapter: TinyVLMAdapter):
    batch = make_batch(rows=2)
    vectors = vista_vectors(adapter, batch)
    outputs = [[], []]
    part = adapter.mlp_layers()[1]
    plain = part.register_forward_hook(lambda module, inputs, output: outputs[0].append(output))
    with vista(adapter, vectors, 0.5):
        handle = part.register_forward_hook(lambda module, inputs, output: outputs[1].append(output))
        adapter.generate(batch, 1)
        handle.remove()
    before, after = outputs[0][0][:, -1], outputs[1][0][:, -1]
    for x, y, v in zip(before, after, vectors[1], strict=True):
        opposed = max(0.0, float(torch.cosine_similarity(x, -v, dim=0)))
        turned = x / x.norm() + 0.5 * (1 + opposed) * v / v.norm()
        assert torch.allclose(y, x.norm() * turned / turned.norm(), atol=1e-5)
    for found in outputs:
        found.clear()
    with vti(adapter, vectors[:, 0], 0.8):
        handle = part.register_forward_hook(lambda module, inputs, output: outputs[1].append(output))
        adapter.generate(batch, 1)
        handle.remove()
    plain.remove()
    x, y, v = outputs[0][0][0, -1], outputs[1][0][0, -1], vectors[1, 0]
    turned = x / x.norm() + 0.08 * v / v.norm()
    assert torch.allclose(y, x.norm() * turned / turned.norm(), atol=1e-5)


def test_bad_input(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    with pytest.raises(ValueError, match="no.* 7|number 7"):
        TLVSExtractor(adapter, layers=[7])
    with pytest.raises(ValueError, match="empty"):
        TLVSExtractor(adapter).fit([])
    with pytest.raises(ValueError, match="sensitive steps"):
        TLVSExtractor(adapter).fit([make_batch(rows=2)])
    mixed = make_batch()
    mixed["prompt_length"][0] = 2
    with pytest.raises(ValueError, match="one length"):
        adapter.generate(mixed, 1)
    with response_edits(adapter.model, {}, lambda number, state: state), pytest.raises(ValueError, match="input_ids"):
        adapter.model(pixels=None)


def test_exact_steering_without_a_gate_is_steering(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    batch = make_batch()
    constant = replace(artifact, gate_kind="none")
    with steering(adapter, constant):
        steered_BT = adapter.generate(batch, 10)
    assert torch.equal(adapter.generate(batch, 10, ExactSteering(adapter, batch, constant)), steered_BT)
    plain_BT = adapter.generate(batch, 10)
    assert not torch.equal(plain_BT, steered_BT)
    assert torch.equal(adapter.generate(batch, 10, ExactSteering(adapter, batch, artifact, alpha=0.0)), plain_BT)


def test_exact_steering_takes_its_strength_from_the_runs_without_steering(adapter: TinyVLMAdapter, artifact: SteeringArtifact):
    batch, strengths = make_batch(), []
    exact = ExactSteering(adapter, batch, artifact)

    def watched(tokens_BT: Tensor, logits_BV: Tensor) -> Tensor:
        scores_BV = exact(tokens_BT, logits_BV)
        strengths.append(exact.strength_B1)
        return scores_BV.index_fill(1, torch.tensor([0, END]), -torch.inf)  # neither padding nor an end

    response_BT = adapter.generate(batch, 6, watched)
    text = batch | {"input_ids": torch.cat([batch["input_ids"][:, :1], response_BT], dim=1)}
    mask_BT = adapter.response_mask(text)
    logits_SV, blind_logits_SV = (adapter.logits(seen)[mask_BT] for seen in (text, adapter.without_image(text)))
    log_s_S = log_sensitivity(visual_sensitivity(logits_SV, blind_logits_SV))
    expected_S = artifact.gate.strength(log_s_S, entropy(logits_SV), artifact.gate_kind)
    strength_BT = torch.cat(strengths, dim=1)
    assert torch.allclose(strength_BT.flatten(), expected_S, atol=1e-5)
    assert strength_BT.std() > 0.05


def test_only_steering_can_be_exact(adapter: TinyVLMAdapter):
    with pytest.raises(ValueError, match="exact=true belongs to method='steering'"):
        SteeringMethod(TLVSExtractor(adapter), "vcd", exact=True)
