"""The study: injections until each kind of fault has its share on each model, and healthy captures."""

import concurrent.futures
import sys
import threading

import score_faults
from score_run import Trouble, generator, network_of, run_batch

# Shares in percent. The transformer costs ten times as much as the others.
SHARES = {"cnn.w8a8": 26, "cnn.w8a16": 20, "vit.w8a8": 7, "vit.w8a16": 7, "random-residual.u8": 20, "random-attention.w8a8": 20}
BATCH = 16
MAX_ROUNDS = 12


def quotas(n, names, shares):
    """n things over names by their shares, the remainder to the largest fractions."""
    exact = [n * s / sum(shares) for s in shares]
    counts = [int(e) for e in exact]
    order = sorted(range(len(names)), key=lambda i: counts[i] - exact[i])
    for i in order[: n - sum(counts)]:
        counts[i] += 1
    return dict(zip(names, counts))


class Study:
    def __init__(self, options):
        self.options = options
        self.models = options.models
        self.networks, self.refused, self.outcomes, self.ineffective = {}, {}, [], {}
        self.refusals = {} # (fault word, operator): what the emulator said
        self.n_batches, self.lock = 0, threading.Lock()

    def run_all(self, batches):
        """batches: (model, inputs, devices, repeats); their outcomes, in order."""
        o, done = self.options, 0

        def run(batch):
            nonlocal done
            model, inputs, devices, repeats = batch
            outcomes = run_batch(model, inputs, devices, o.seed, o.samples, repeats, o.keep)
            with self.lock:
                done += 1
                if not o.quiet and (done % 20 == 0 or done == len(batches)):
                    print(f"score: {done} of {len(batches)} batches", file=sys.stderr, flush=True)
            return outcomes

        with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
            futures = [pool.submit(run, b) for b in batches]
            try:
                return [outcome for f in futures for outcome in f.result()]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def learn(self):
        for model in self.models:
            self.networks[model] = network_of(model, self.options.seed, self.options.samples)
            self.refused[model] = set()

    def draw_round(self, number, missing):
        """Batches for what is missing: {(model, word): count}. A third more than missing after the first round, as some change
        no code."""
        batches = []
        for model in self.models:
            for is_repeated in (False, True):
                devices = []
                for (m, word), count in missing.items():
                    if m != model or (word in score_faults.REPEATED) != is_repeated:
                        continue
                    rng = generator(self.options.seed, model, word, number)
                    for _ in range(count + (count + 2) // 3 * min(number, 6)):
                        drawn = score_faults.injection(rng, word, self.networks[model], self.refused[model])
                        if drawn is not None:
                            devices.append((word, *drawn))
                shuffled = [devices[i] for i in generator(self.options.seed, model, number).permutation(len(devices))]
                for at in range(0, len(shuffled), BATCH):
                    self.n_batches += 1
                    some = shuffled[at : at + BATCH]
                    batches.append((model, f"injection-{self.n_batches}", some, 2 if is_repeated else 1))
        return batches

    def inject(self):
        """Rounds of injections: each draws anew what the one before lacked."""
        words = list(score_faults.FAULTS)
        per_model = quotas(self.options.n, self.models, [SHARES[m] for m in self.models])
        missing = {}
        for i, (model, n) in enumerate(per_model.items()):
            turned = words[(5 * i) % len(words) :] + words[: (5 * i) % len(words)]  # small studies meet all kinds
            missing |= {(model, w): c for w, c in quotas(n, turned, [1] * len(words)).items() if c > 0}
        for number in range(MAX_ROUNDS):
            if not missing:
                break
            batches = self.draw_round(number, missing)
            op_types = {(b[0], uri): op for b in batches for _, uri, op in b[2]}
            for outcome in self.run_all([(m, i, [(w, u) for w, u, _ in d], r) for m, i, d, r in batches]):
                key = (outcome.model, outcome.word)
                if outcome.refusal:
                    pair = (outcome.word, op_types[outcome.model, outcome.device])
                    self.refused[outcome.model].add(pair)
                    self.refusals.setdefault(pair, outcome.refusal)
                elif not outcome.is_effective:
                    self.ineffective[outcome.word] = self.ineffective.get(outcome.word, 0) + 1
                if outcome.is_effective and key in missing:
                    self.outcomes.append(outcome)
                    missing[key] -= 1
                    if missing[key] == 0:
                        del missing[key]
        return missing

    def stay_healthy(self):
        """Captures without a fault, each of its own inputs."""
        batches = []
        for model, n in quotas(self.options.healthy, self.models, [SHARES[m] for m in self.models]).items():
            for i in range(n):
                rng = generator(self.options.seed, model, "healthy", i)
                batches.append((model, f"healthy-{i}", [("", score_faults.healthy(rng, self.networks[model]))], 1))
        outcomes = self.run_all(batches)
        for outcome in outcomes:
            if outcome.refusal:
                raise Trouble(outcome.refusal)
            if outcome.faults:
                raise Trouble(f"{outcome.device}: its capture says that {outcome.first} is faulty")
        return outcomes
