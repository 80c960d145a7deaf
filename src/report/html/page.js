/* What a reader can do with the page: sort and filter tables, fold blocks of tensors, look at the details of a cell, walk
 * along the graph. Without it the page is complete, but still. Texts of captures are only ever set as text. */
"use strict";
(() => {
  /* Characters that turn the direction of text, and controls, are seen and do nothing, as in the page itself. */
  const obeyed = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
  const show = (text) => text.replace(obeyed, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  const data = JSON.parse(document.getElementById("data").textContent, (key, value) => typeof value === "string" ? show(value) : value);
  const svgSpace = "http://www.w3.org/2000/svg";
  document.documentElement.classList.add("scripted");

  const make = (name, properties = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties))
      if (key in element) element[key] = value;
      else element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const makeSvg = (name, attributes = {}, ...children) => {
    const element = document.createElementNS(svgSpace, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const bdi = (text) => make("bdi", { className: "name" }, text);
  const count = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  /* as nd_format_percent */
  const digitsOf = (share) => {
    const round = (value) => Math.floor(value + 0.5 + 1e-10), size = Math.abs(share);
    if (size === 0 || size >= 1) return (100 * size).toFixed(0);
    if (size < 1e-4) return "<0.01";
    if (round(1e3 * size) >= 1000) return ">99.9";
    return round(1e4 * size) < 100 ? (round(1e4 * size) / 100).toFixed(2) : (round(1e3 * size) / 10).toFixed(1);
  };
  const percent = (share) => (share < 0 ? "-" : "") + digitsOf(share) + "\u202f%";

  /* ---- sorting ---- */

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return "";
    return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent.trim();
  };
  const compareKeys = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const sortBy = (table, heads, column) => {
    const body = table.tBodies[0];
    const head = heads[column];
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [keyOf(row, column), row]);
    rows.sort((a, b) => (ascending ? 1 : -1) * compareKeys(a[0], b[0]));
    body.append(...rows.map((pair) => pair[1]));
  };
  const makeSortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", className: "sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(table, heads, column));
    });
  };

  /* ---- the panel ---- */

  let opener = null;
  const panel = make("aside", { className: "panel", hidden: true, tabIndex: -1, "aria-label": "Details" });
  document.body.append(panel);
  const closePanel = () => {
    panel.hidden = true;
    if (opener) opener.focus();
  };
  const showPanel = (title, children) => {
    const close = make("button", { type: "button", className: "close" }, "Close");
    close.addEventListener("click", closePanel);
    panel.replaceChildren(make("h3", {}, ...title), close, ...children);
    panel.hidden = false;
    panel.scrollTop = 0;
    panel.focus({ preventScroll: true });
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) closePanel();
  });

  /* ---- details of a tensor ---- */

  const rangeWords = (key) => key.replace("..", " to ");
  const startOf = (key) => key === "<-3" ? -4 : key === ">3" ? 4 : parseFloat(key);
  const histogram = (counts) => {
    const list = make("div", { className: "bars-list" });
    const entries = Object.entries(counts).sort((a, b) => startOf(a[0]) - startOf(b[0]));
    const most = Math.max(1, ...entries.filter((entry) => entry[0] !== "0").map((entry) => entry[1]));
    for (const [key, n] of entries) {
      const bar = makeSvg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
      const width = key === "0" ? 0 : Math.max(0.6, 100 * n / most);
      bar.append(makeSvg("rect", { class: "chip", width, height: 10 }));
      list.append(make("span", { className: "from" }, rangeWords(key)), bar, make("span", {}, count(n)));
    }
    return list;
  };
  const worstTable = (worst, label) => {
    const table = make("table", {}, make("caption", {}, "Worst elements, as real numbers"));
    const head = make("tr");
    for (const title of ["Probe", "Sample", "Element", "Reference", label])
      head.append(make("th", { scope: "col", className: title === "Probe" || title === "Element" ? "" : "n" }, title));
    const body = make("tbody");
    for (const [probe, sample, place, ref, test] of worst)
      body.append(make("tr", {}, make("td", {}, bdi(probe)), make("td", { className: "n" }, String(sample)),
        make("td", {}, place.join(", ")), make("td", { className: "n" }, String(Number(ref.toPrecision ? ref.toPrecision(7) : ref))),
        make("td", { className: "n" }, String(Number(test.toPrecision ? test.toPrecision(7) : test)))));
    table.append(make("thead", {}, head), body);
    return table;
  };
  const cellDetails = (cell, label) => {
    const parts = [make("h4", {}, bdi(label))];
    if (!cell) return [...parts, make("p", {}, "Every bit is equal to the reference's.")];
    const words = [];
    if (cell.d !== undefined) words.push(`${count(cell.d)} of ${count(cell.n)} values differ (${percent(cell.d / cell.n)})`);
    if (cell.sd !== undefined) words.push(`in ${count(cell.sd)} of ${count(cell.s)} samples`);
    if (cell.lsb !== undefined) words.push(`by at most ${count(cell.lsb)} LSB`);
    if (cell.abs !== undefined) words.push(`largest error ${Number(cell.abs.toPrecision(4))}`);
    if (cell.sqnr !== undefined) words.push(`signal to noise ${cell.sqnr.toFixed(1)} dB`);
    parts.push(make("p", {}, words.join(", ") + (cell.why ? ". " + cell.why : ".")));
    if (Object.keys(cell.h).length > 0) parts.push(make("p", { className: "op" }, "Differences in LSB, and how many values have them:"), histogram(cell.h));
    if (cell.w && cell.w.length > 0) parts.push(worstTable(cell.w, label));
    return parts;
  };
  const showTensor = (part, index, group) => {
    const tensor = part.tensors[index];
    const link = document.getElementById(`${part.prefix}tensor-${index + 1}`);
    const order = part.groups.map((_, g) => g);
    if (group !== undefined) order.unshift(...order.splice(group, 1));
    const children = tensor.gate ? [make("p", { className: "op" }, "Gate: " + tensor.gate)] : [];
    for (const g of order) children.push(...cellDetails(tensor.cells[g], part.groups[g]));
    showPanel([bdi(link.textContent)], children);
  };

  /* ---- the heat map ---- */

  const addTools = (part, table) => {
    const filter = make("input", { type: "search", id: part.prefix + "filter" });
    const only = make("input", { type: "checkbox", id: part.prefix + "only" });
    const colour = make("select", { id: part.prefix + "colour" }, make("option", { value: "share" }, "share that differs"),
      make("option", { value: "size" }, "largest difference"));
    const order = make("select", { id: part.prefix + "order" }, make("option", { value: "graph" }, "graph order"),
      make("option", { value: "share" }, "most different first"), make("option", { value: "name" }, "name"));
    const status = make("span", { className: "status", role: "status" });
    const tools = make("div", { className: "tools" }, make("label", { htmlFor: filter.id }, "Name or operator"), filter,
      make("span", {}, only, " ", make("label", { htmlFor: only.id }, "only tensors that differ")),
      make("label", { htmlFor: colour.id }, "Colour by"), colour, make("label", { htmlFor: order.id }, "Order"), order, status);
    table.parentElement.before(tools);
    const rows = [...table.querySelectorAll("tr[data-t]")];
    const graphBodies = [...table.tBodies];
    const homes = rows.map((row) => row.parentElement);
    const words = rows.map((row) => (row.cells[0].textContent + " " + row.cells[1].textContent).toLowerCase());
    const apply = () => {
      const wanted = filter.value.trim().toLowerCase();
      let shown = 0;
      rows.forEach((row, i) => {
        const hit = words[i].includes(wanted) && (!only.checked || Number(row.dataset.s) > 0);
        row.classList.toggle("filtered", !hit);
        shown += hit;
      });
      for (const body of graphBodies)
        body.classList.toggle("filtered", !body.querySelector("tr[data-t]:not(.filtered)"));
      status.textContent = shown === rows.length ? "" : `${shown} of ${rows.length} tensors`;
    };
    const arrange = () => {
      if (order.value === "graph") {
        rows.forEach((row, i) => homes[i].append(row));
        table.append(...graphBodies);
        sorted.remove();
      } else {
        const list = [...rows];
        if (order.value === "share") list.sort((a, b) => b.dataset.s - a.dataset.s || a.dataset.t - b.dataset.t);
        else list.sort((a, b) => compareKeys(a.cells[0].textContent, b.cells[0].textContent));
        sorted.append(...list);
        for (const body of graphBodies) body.remove();
        table.append(sorted);
      }
      apply();
    };
    const sorted = make("tbody");
    filter.addEventListener("input", apply);
    only.addEventListener("change", apply);
    order.addEventListener("change", arrange);
    colour.addEventListener("change", () => {
      table.classList.toggle("by-share", colour.value === "share");
      table.classList.toggle("by-size", colour.value === "size");
    });
  };
  const makeFoldable = (table) => {
    for (const row of table.querySelectorAll("tr.block")) {
      const head = row.cells[0];
      const button = make("button", { type: "button", "aria-expanded": "true" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const closed = row.parentElement.classList.toggle("closed");
        button.setAttribute("aria-expanded", String(!closed));
      });
    }
  };
  const openTarget = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = document.getElementById(id);
    if (!target) return;
    for (let element = target; element; element = element.parentElement)
      if (element.tagName === "DETAILS") element.open = true;
    const body = target.closest("tbody");
    if (body) body.classList.remove("closed");
    const match = /tensor-(\d+)$/.exec(id);
    const part = match && data.parts.find((one) => one.tensors && id === `${one.prefix}tensor-${match[1]}`);
    if (part) {
      opener = target;
      showTensor(part, Number(match[1]) - 1);
    }
  };
  const wakeHeat = (part) => {
    const table = document.getElementById(part.prefix + "tensors").querySelector("table.heat");
    addTools(part, table);
    makeFoldable(table);
    table.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-t]");
      const cell = event.target.closest("td");
      const link = row && row.querySelector("a");
      if (!row || (event.target.closest("a") && location.hash !== link.hash)) return;
      opener = link;
      const group = cell ? cell.cellIndex - 3 : -1;
      if (cell && group < 0) return;
      showTensor(part, Number(row.dataset.t), group >= 0 ? group : undefined);
    });
    table.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || event.target.tagName !== "A") return;
      const links = [...table.querySelectorAll("tr[data-t]:not(.filtered) a")];
      const next = links[links.indexOf(event.target) + step];
      if (next) next.focus();
      event.preventDefault();
    });
  };

  /* ---- the graph ---- */

  const shareSteps = [0, 0.001, 0.01, 0.05, 0.2, 0.5];
  const stepOf = (share) => {
    const step = shareSteps.findIndex((end) => share <= end);
    return step < 0 ? 6 : step;
  };
  /* Layers are drawn one by one up to here; beyond, those whose names begin alike are one node. */
  const maxNodes = 300;
  const prefixOf = (name, depth) => name.split("/").filter((word) => word).slice(0, depth).join("/");
  const blocksOf = (nodes) => {
    let depth = 6;
    const alone = nodes.length <= maxNodes;
    const keys = (d) => nodes.map((node, i) => alone ? String(i) : prefixOf(node[0], d) || node[0]);
    while (!alone && depth > 1 && new Set(keys(depth)).size > maxNodes) depth--;
    const blocks = new Map();
    const blockOf = keys(depth).map((key, i) => {
      if (!blocks.has(key)) {
        if (!alone && blocks.size >= maxNodes) key = [...blocks.keys()].pop();
        else blocks.set(key, { id: blocks.size, name: alone ? nodes[i][0] : key, op: alone ? nodes[i][1] : "", members: [] });
      }
      const block = blocks.get(key);
      block.members.push(i);
      return block.id;
    });
    const edges = new Set();
    nodes.forEach((node, i) => node[2].forEach((from) => {
      if (blockOf[from] !== blockOf[i]) edges.add(blockOf[from] + " " + blockOf[i]);
    }));
    return { list: [...blocks.values()], edges: [...edges].map((edge) => edge.split(" ").map(Number)) };
  };
  const shorten = (text, length) => text.length <= length ? text : text.slice(0, length / 2 - 1) + "\u2026" + text.slice(-length / 2);
  const valueOf = (layers, block, index) => Math.max(...block.members.map((i) => layers[i][index] ?? 0));
  const stateOf = (layers, block) => {
    const states = block.members.map((i) => layers[i][3]);
    return states.includes("fail") ? "fail" : states.includes("unknown") ? "unknown" : "ok";
  };
  const sizeOf = (layers, block) => {
    const effect = valueOf(layers, block, 2);
    return { width: 132 + 70 * Math.sqrt(effect), height: 40 + 34 * Math.sqrt(effect) };
  };
  const layOut = (graph, layers) => {
    const g = new dagre.graphlib.Graph();
    g.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 24, marginx: 8, marginy: 8 });
    g.setDefaultEdgeLabel(() => ({}));
    for (const block of graph.list) g.setNode(String(block.id), sizeOf(layers, block));
    for (const [from, to] of graph.edges) g.setEdge(String(from), String(to));
    dagre.layout(g);
    return g;
  };
  const ancestors = (graph, id) => {
    const found = new Set([id]);
    for (let grew = true; grew;) {
      grew = false;
      for (const [from, to] of graph.edges)
        if (found.has(to) && !found.has(from)) grew = !!found.add(from);
    }
    return found;
  };
  const descendants = (graph, id) => {
    const turned = { edges: graph.edges.map(([from, to]) => [to, from]) };
    return ancestors(turned, id);
  };
  const drawEdge = (g, from, to, carries) => {
    const points = g.edge(String(from), String(to)).points;
    const path = points.map((point, i) => `${i ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("");
    return makeSvg("path", { class: "edge" + (carries ? " carries" : ""), d: path, "data-from": from, "data-to": to });
  };
  const drawNode = (g, block, layers) => {
    const place = g.node(String(block.id));
    const state = stateOf(layers, block);
    const local = valueOf(layers, block, 0), passed = valueOf(layers, block, 1), effect = valueOf(layers, block, 2);
    const words = `${block.name}${block.op ? ", " + block.op : ""}: introduced here ${percent(local)}, passed on ${percent(passed)}, effect on the outputs ${percent(effect)}`;
    const node = makeSvg("g", { class: `node l${stepOf(local)} ${state}`, tabindex: "0", role: "button", "aria-label": words, "data-id": block.id,
      transform: `translate(${(place.x - place.width / 2).toFixed(1)} ${(place.y - place.height / 2).toFixed(1)})` });
    const title = makeSvg("title");
    title.textContent = words;
    const name = makeSvg("text", { x: 8, y: place.height / 2 - 3 }), line = makeSvg("text", { x: 8, y: place.height / 2 + 12 });
    name.textContent = shorten(block.name, 18);
    line.textContent = `${block.op ? shorten(block.op, 12) + " " : ""}${percent(local)}`;
    node.append(title, makeSvg("rect", { width: place.width, height: place.height, rx: 5 }), name, line);
    return node;
  };
  const markPath = (svg, graph, id) => {
    const on = new Set([...ancestors(graph, id), ...descendants(graph, id)]);
    const before = ancestors(graph, id), after = descendants(graph, id);
    for (const node of svg.querySelectorAll(".node")) {
      node.classList.toggle("dim", !on.has(Number(node.dataset.id)));
      node.classList.toggle("path", Number(node.dataset.id) === id);
    }
    for (const edge of svg.querySelectorAll(".edge")) {
      const from = Number(edge.dataset.from), to = Number(edge.dataset.to);
      const hit = after.has(from) && after.has(to);
      edge.classList.toggle("path", hit);
      edge.classList.toggle("dim", !hit && !(before.has(from) && before.has(to)));
    }
  };
  const clearPath = (svg) => {
    for (const one of svg.querySelectorAll(".dim, .path")) one.classList.remove("dim", "path");
  };
  const draw = (canvas, graph, device) => {
    const layers = device.layers, g = layOut(graph, layers), size = g.graph();
    const svg = makeSvg("svg", { width: Math.ceil(size.width), height: Math.ceil(size.height), viewBox: `0 0 ${Math.ceil(size.width)} ${Math.ceil(size.height)}`,
      role: "group", "aria-label": "Layers of the model on " + device.label });
    for (const [from, to] of graph.edges) {
      const source = graph.list[from];
      svg.append(drawEdge(g, from, to, valueOf(layers, source, 0) > 0 || valueOf(layers, source, 1) > 0));
    }
    for (const block of graph.list) svg.append(drawNode(g, block, layers));
    const choose = (event) => {
      const node = event.target.closest(".node");
      if (!node) return clearPath(svg);
      if (node.classList.contains("path")) clearPath(svg);
      else markPath(svg, graph, Number(node.dataset.id));
    };
    svg.addEventListener("click", choose);
    svg.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(event);
    });
    canvas.replaceChildren(svg);
    return svg;
  };
  const wakeGraph = (part) => {
    const home = document.querySelector(`#${part.prefix}flow .graph`);
    if (!home || typeof dagre === "undefined" || part.flow.nodes.length === 0) return;
    const graph = blocksOf(part.flow.nodes);
    const choice = make("select", { id: part.prefix + "flow-device" });
    part.flow.devices.forEach((device, i) => choice.append(make("option", { value: i }, device.label)));
    const findDevice = (test) => part.flow.devices.findIndex((device) => device.layers.some(test));
    const faulty = findDevice((layer) => layer[3] === "fail");
    const worst = faulty >= 0 ? faulty : findDevice((layer) => layer[0] > 0);
    const zoom = make("input", { type: "range", id: part.prefix + "flow-zoom", min: 20, max: 150, value: 100 });
    const title = part.prefix ? `, ${document.getElementById(`${part.prefix}flow-title`).textContent}` : "";
    const canvas = make("div", { className: "canvas", tabIndex: 0, role: "region", "aria-label": `Graph of the model${title}` });
    home.append(make("div", { className: "tools" }, make("label", { htmlFor: choice.id }, "Device"), choice,
      make("label", { htmlFor: zoom.id }, "Zoom"), zoom), canvas,
      make("p", { className: "op" }, "Darker: more values differ because of the layer itself. Larger: more effect on the outputs. Red: faulty. " +
        "Yellow lines carry differences. Choose a layer to see where its values come from and go to."));
    let svg = null;
    const scale = () => {
      const box = svg.viewBox.baseVal;
      svg.setAttribute("width", Math.ceil(box.width * zoom.value / 100));
      svg.setAttribute("height", Math.ceil(box.height * zoom.value / 100));
    };
    const show = () => {
      svg = draw(canvas, graph, part.flow.devices[Number(choice.value)]);
      scale();
    };
    const fit = () => {
      const room = canvas.clientWidth || 800;
      zoom.value = Math.max(70, Math.min(100, 100 * room / svg.viewBox.baseVal.width));
      scale();
    };
    choice.value = String(Math.max(0, worst));
    choice.addEventListener("change", show);
    zoom.addEventListener("input", scale);
    home.hidden = false;
    const begin = () => {
      show();
      fit();
    };
    if (part.flow.nodes.length <= 100) begin();
    else {
      /* A large graph takes a second to lay out: only when it comes into sight. */
      const watcher = new IntersectionObserver((entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        watcher.disconnect();
        begin();
      });
      watcher.observe(home);
    }
  };

  /* ---- latencies ---- */

  const wakeStrip = (figure, runs) => {
    const top = Number(figure.dataset.top);
    const modes = figure.dataset.modes.split(" ").filter((word) => word).map(Number);
    const drawModes = (plot) => {
      plot.ctx.save();
      plot.ctx.strokeStyle = style.getPropertyValue("--interaction");
      plot.ctx.lineWidth = 1.5 * devicePixelRatio;
      plot.ctx.setLineDash([6, 4]);
      for (const mode of modes) {
        const y = plot.valToPos(mode, "y", true);
        plot.ctx.beginPath();
        plot.ctx.moveTo(plot.bbox.left, y);
        plot.ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
        plot.ctx.stroke();
      }
      plot.ctx.restore();
    };
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const plot = new uPlot({
      width: Math.max(280, figure.clientWidth - 24), height: 150, legend: { show: false }, hooks: { draw: [drawModes] },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.min(high * 1.02, top)] } }, axes: [{ ...axis, label: "run", size: 26, labelSize: 18 }, { ...axis, label: "\u00b5s", size: 64, space: 18 }],
      series: [{ label: "run" }, { label: "\u00b5s", paths: () => null, points: { show: true, size: 3, stroke: style.getPropertyValue("--chip"), fill: style.getPropertyValue("--chip") } }],
    }, [runs.map((_, i) => i), runs]);
    figure.querySelector("svg").replaceWith(plot.root);
    const reading = make("span", { className: "op reading" });
    figure.querySelector("figcaption").append(reading);
    plot.over.addEventListener("mousemove", () => {
      const run = plot.cursor.idx;
      reading.textContent = run === null || run === undefined || runs[run] === null ? "" : ` \u00b7 run ${run}: ${Number(runs[run].toPrecision(5))} \u00b5s`;
    });
    window.addEventListener("resize", () => plot.setSize({ width: Math.max(280, figure.clientWidth - 24), height: 150 }));
  };
  const wakeStrips = (part) => {
    part.latency.forEach((runs, i) => {
      const figure = document.querySelector(`[data-series="${part.prefix}${i}"]`);
      if (figure && typeof uPlot !== "undefined") wakeStrip(figure, runs);
    });
  };

  for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
  for (const part of data.parts) {
    if (part.tensors) wakeHeat(part);
    if (part.flow) wakeGraph(part);
    if (part.latency) wakeStrips(part);
  }
  window.addEventListener("hashchange", openTarget);
  openTarget();
})();
