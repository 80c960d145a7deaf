"""exec:ort: ONNX Runtime's Python package, with its built-in providers.

Options: provider=cpu (default) or xnnpack; optimisation=disable (default), basic, extended or all."""
import onnxruntime

from npudiff.runner import Runner, RunnerError, main

PROVIDERS = {"cpu": "CPUExecutionProvider", "xnnpack": "XnnpackExecutionProvider"}
LEVELS = {"disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
          "all": "ORT_ENABLE_ALL"}


def choose(options, key, words, default):
    word = options.get(key, default)
    if word not in words:
        raise RunnerError(f"option '{key}' is {', '.join(words)}, not '{word}'")
    return words[word]


class Ort(Runner):
    name, version = "ort", "1"
    versions = {"onnxruntime": onnxruntime.__version__}
    options = ("provider", "optimisation")

    def load(self, job):
        provider = choose(job.options, "provider", PROVIDERS, "cpu")
        if provider not in onnxruntime.get_available_providers():
            raise RunnerError(f"this package of ONNX Runtime has no {provider}")
        options = onnxruntime.SessionOptions()
        level = choose(job.options, "optimisation", LEVELS, "disable")
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        providers = list(dict.fromkeys([provider, "CPUExecutionProvider"]))
        self.session = onnxruntime.InferenceSession(job.model, options, providers=providers)
        known = {output.name for output in self.session.get_outputs()}
        self.missing = {t.name: "it is no output of the model" for t in job.outputs if t.name not in known}
        self.wanted = [tensor.name for tensor in job.outputs if tensor.name in known]

    def run(self, inputs):
        return dict(zip(self.wanted, self.session.run(self.wanted, inputs)))


if __name__ == "__main__":
    main(Ort)
