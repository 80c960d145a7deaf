#!/usr/bin/env python3
"""npudiff.torch.simulate: forward is the bits of the chip (of Qualcomm's simulator), backward that of the module."""
import os
import pathlib
import sys
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = [] if os.environ.get("NPUDIFF_PACKAGE") == "installed" else [str(ROOT / "python" / "src")]
sys.path[:0] = [*SOURCE, str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "support")]
import npudiff # noqa: E402
import onnx_write as ow # noqa: E402
from support import MODELS, Scratch, main # noqa: E402

try:
    import torch
    import npudiff.torch # noqa: E402
except ImportError:
    torch = None

CNN = MODELS / "cnn.w8a8.onnx"


def images(n):
    with np.load(MODELS / "digits-test.npz") as file:
        return file["image"][:n]


def linear(path, weight, with_relu=False):
    """A uint8 MatMul by that weight, whose quantised values are steps of 1/64; with a Relu of it, a second output."""
    constants = {"s": np.float32(2 ** -5), "z": np.uint8(128), "ws": np.float32(2 ** -6), "wz": np.int8(0),
                 "w": np.clip(np.rint(weight * 64), -127, 127).astype(np.int8)}
    nodes = [ow.node("QuantizeLinear", ["x", "s", "z"], ["x.q"]), ow.node("DequantizeLinear", ["x.q", "s", "z"], ["x.dq"]),
             ow.node("DequantizeLinear", ["w", "ws", "wz"], ["w.dq"]), ow.node("MatMul", ["x.dq", "w.dq"], ["m"]),
             ow.node("QuantizeLinear", ["m", "s", "z"], ["y.q"]), ow.node("DequantizeLinear", ["y.q", "s", "z"], ["y"])]
    if with_relu:
        nodes += [ow.node("Relu", ["y"], ["r"]), ow.node("QuantizeLinear", ["r", "s", "z"], ["z.q"]),
                  ow.node("DequantizeLinear", ["z.q", "s", "z"], ["relu"])]
    path.write_bytes(ow.model(nodes, [ow.value_info("x", ow.FLOAT, (1, weight.shape[0]))],
                              [ow.value_info(name, ow.FLOAT, (1, weight.shape[1])) for name in (["y", "relu"] if with_relu else ["y"])],
                              constants))
    return path


if torch:
    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(4, 3))

        def forward(self, x):
            return x @ self.weight


@unittest.skipUnless(torch, "there is no torch")
class Simulate(Scratch):
    def test_forward_is_every_bit_of_the_simulator(self):
        """Qualcomm's, of the CNN, on two generations that differ."""
        x = images(60)
        np.savez(self.folder / "digits.npz", image=x)
        outputs = {}
        for chip in ("gen1", "gen3"):
            made = npudiff.capture(CNN, [f"htp-sim:{chip}"], [f"digits={self.folder / 'digits.npz'}"], self.folder / f"{chip}.h5",
                                   tensors="outputs")[0]
            net = npudiff.torch.simulate(CNN, chip)
            outputs[chip] = net(torch.from_numpy(x))
            with npudiff.load(made) as capture:
                real = capture.values("logits").astype(np.float32).reshape(60, 10)
            self.assertEqual(outputs[chip].dtype, torch.float32)
            np.testing.assert_array_equal(outputs[chip].numpy().view(np.uint32), real.view(np.uint32))
        self.assertFalse(torch.equal(outputs["gen1"], outputs["gen3"]))

    def test_backward_is_that_of_the_module(self):
        module, x = Linear(), torch.randn(5, 4, generator=torch.Generator().manual_seed(3))
        path = linear(self.folder / "m.onnx", module.weight.detach().numpy())
        net = npudiff.torch.simulate(path, "gen3", module)
        made, weights = net(x.requires_grad_()), torch.randn(5, 3, generator=torch.Generator().manual_seed(4))
        np.testing.assert_array_equal(made.detach().numpy(), npudiff.Twin(path, "gen3").run(x.detach().numpy())["y"])
        self.assertFalse(torch.equal(made, module(x))) # it is quantised
        (made * weights).sum().backward()
        found = module.weight.grad.clone(), x.grad.clone()
        module.weight.grad = x.grad = None
        (module(x) * weights).sum().backward()
        self.assertTrue(torch.equal(found[0], module.weight.grad) and torch.equal(found[1], x.grad))
        self.assertEqual([p.data_ptr() for p in net.parameters()], [module.weight.data_ptr()])
        with torch.no_grad():
            self.assertTrue(torch.equal(net(x), made))
            self.assertTrue(torch.equal(net(x=x), made))

    def test_without_a_module_there_is_no_gradient(self):
        net = npudiff.torch.simulate(CNN, "gen3")
        made = net(torch.from_numpy(images(3)).double().requires_grad_())
        self.assertFalse(made.requires_grad)
        np.testing.assert_array_equal(made.numpy(), npudiff.Twin(CNN, "gen3").run(images(3))["logits"])

    def test_what_is_learnt_is_exported_once(self):
        """Before the forward after a change, however it was made; not where nothing has changed."""
        module, x, n = Linear(), torch.ones(2, 4), []
        net = npudiff.torch.simulate(lambda m: n.append(1) or linear(self.folder / "m.onnx", m.weight.numpy()), "gen3", module)
        first = net(x)
        self.assertTrue(torch.equal(net(x), first))
        self.assertEqual(len(n), 1)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
        (net(x) - 1).square().sum().backward()
        optimiser.step()
        self.assertFalse(torch.equal(net(x), first))
        self.assertEqual(len(n), 2)
        module.weight.data.zero_()
        self.assertEqual(net(x).abs().max(), 0)
        self.assertEqual(len(n), 3)

    def test_it_learns_on_the_bits(self):
        """Least squares through a MatMul of 8 bits: the loss of what the chip gives falls."""
        module, target = Linear(), torch.tensor([[0.5, -0.25, 0.75]]).repeat(2, 1)
        net = npudiff.torch.simulate(lambda m: linear(self.folder / "m.onnx", m.weight.numpy()), "gen1", module)
        optimiser, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.tensor([[1.0, 0.5, -0.5, 0.25]]).repeat(2, 1)
        losses = []
        for _ in range(30):
            optimiser.zero_grad()
            losses.append((net(x) - target).square().sum())
            losses[-1].backward()
            optimiser.step()
        self.assertGreater(losses[0], 0.1)
        self.assertLess(losses[-1], 0.01)

    def test_several_outputs(self):
        """A tuple in the order of the model, a dict where the module gives one; each with its own gradient."""
        for is_dict in (False, True):
            class Two(Linear):
                def forward(self, x):
                    y = super().forward(x)
                    return {"relu": y.relu(), "y": y} if is_dict else (y, y.relu())

            module, x = Two(), torch.tensor([[1.0, -0.5, 0.25, 2.0]])
            path = linear(self.folder / "m.onnx", module.weight.detach().numpy(), with_relu=True)
            bits, made = npudiff.Twin(path, "gen3").run(x.numpy()), npudiff.torch.simulate(path, "gen3", module)(x)
            self.assertEqual(type(made), dict if is_dict else tuple)
            for i, name in enumerate(("y", "relu")):
                one, own = (made[name], module(x)[name]) if is_dict else (made[i], module(x)[i])
                np.testing.assert_array_equal(one.detach().numpy(), bits[name])
                found, = torch.autograd.grad(one.sum(), module.weight, retain_graph=True)
                expected, = torch.autograd.grad(own.sum(), module.weight)
                self.assertTrue(torch.equal(found, expected))

    def test_what_does_not_fit_is_an_error(self):
        x, module = torch.ones(2, 4), Linear()
        path = linear(self.folder / "m.onnx", module.weight.detach().numpy())
        for net, call, words in [
                (npudiff.torch.simulate(path, "gen3", torch.nn.Linear(4, 2)), lambda net: net(x), r"'y' is \(2, 3\) on the chip, and \(2, 2\)"),
                (npudiff.torch.simulate(path, "gen3"), lambda net: net(x, x), r"inputs \['x'\]; 2 came by place"),
                (npudiff.torch.simulate(path, "gen3"), lambda net: net(z=x), r"\['z'\] by name")]:
            with self.assertRaisesRegex(ValueError, words):
                call(net)
        with self.assertRaisesRegex(ValueError, "needs the module"):
            npudiff.torch.simulate(lambda m: path, "gen3")
        with self.assertRaisesRegex(npudiff.TroubleError, "gen9"):
            npudiff.torch.simulate(path, "gen9")


if __name__ == "__main__":
    main()
