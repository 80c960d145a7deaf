"""What tools/studies/score prints: shares with exact intervals, tables, and how to see a miss again."""

import math


def tail(k, n, p):
    """P(X <= k) of a binomial."""
    if p <= 0:
        return 1.0
    if p >= 1:
        return float(k >= n)
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
            for i in range(k + 1)]  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, logs)))


def solve(function):
    """Where a function that decreases over [0, 1] crosses 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2


def clopper_pearson(k, n, alpha=0.05):
    """The exact interval of k successes in n trials."""
    if n == 0:
        return 0.0, 1.0
    low = 0.0 if k == 0 else solve(lambda p: tail(k - 1, n, p) - (1 - alpha / 2))
    high = 1.0 if k == n else solve(lambda p: tail(k, n, p) - alpha / 2)
    return low, high


def share(k, n):
    """"99.80% [95%: 99.55 to 99.93]"; nothing of nothing."""
    if n == 0:
        return "-"
    low, high = clopper_pearson(k, n)
    return f"{100 * k / n:.2f}% [95%: {100 * low:.2f} to {100 * high:.2f}]"


def print_rows(rows):
    """Columns aligned, the first one to the left."""
    widths = [max(len(str(r[i])) for r in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def counted(outcomes, is_right):
    return f"{sum(map(is_right, outcomes))}/{len(outcomes)}" if outcomes else "-"


def print_injections(outcomes, models, words, is_named):
    """Found per fault and model; of all: the kind as well, and the share of exact units with its interval."""
    rows = [["fault", *models, "all", "kind too", "exact unit"]]
    for word in [*words, "all"]:
        of_word = [o for o in outcomes if word in (o.word, "all")]
        cells = [counted([o for o in of_word if o.model == m], lambda o: o.is_found) for m in models]
        n_named = sum(is_named(o) for o in of_word)
        rows.append([word, *cells, counted(of_word, lambda o: o.is_found), n_named,
                     share(sum(o.is_found for o in of_word), len(of_word))])  # fmt: skip
    print_rows(rows)


def print_methods(outcomes, healthy):
    """Beside explain: what distances to the quantised reference name in the same captures."""
    rows = [["method", "exact unit", "false alarms"]]
    n, m = len(outcomes), len(healthy)
    rows.append(["npudiff explain", share(sum(o.is_found for o in outcomes), n), share(sum(o.is_alarm for o in healthy), m)])
    methods = next((list(o.naive) for o in [*outcomes, *healthy] if o.naive), [])
    for method in methods:
        found = sum(o.naive.get(method) == o.first for o in outcomes)
        alarms = sum(o.naive.get(method) is not None for o in healthy)
        rows.append([method, share(found, n), share(alarms, m)])
    print_rows(rows)


def print_wrong(title, outcomes, options):
    if not outcomes:
        return
    print(f"\n{title}:")
    for o in outcomes:
        answer = o.trouble or ("named " + ", ".join(list(o.named)[:3]) if o.named else "named nothing")
        truth = f"{o.first} ({o.faults[0][1]}, {o.faults[0][2]} codes); " if o.faults else ""
        print(f"  {truth}{answer}")
        repeats = f" --repeats {o.repeats}" if o.repeats > 1 else ""
        print(f"    tools/studies/score one {o.model} {o.inputs} '{o.device}' --seed {options.seed} --samples {options.samples}{repeats}")
