// The status page: reads the stream of the status API and shows it. No framework, nothing from elsewhere.
// Texts from the server only ever become textContent.
"use strict";

const STATES = ["busy", "idle", "draining", "drained", "starting", "terminating", "powered-down", "unknown", "down"];
const JOBS_EVERY = 10000;
const MOST_BLOCKED = 60;
const MOST_JOBS = 300;
const MOST_DECISIONS = 100;

const $ = (id) => document.getElementById(id);
const model = { clusters: new Map(), nodesets: new Map(), workers: new Map(), decisions: [], jobs: [], operator: null, scope: null };
const ui = { cells: new Map(), grids: new Map(), tab: "all", filter: "", selected: null, history: [], due: false, live: false };

// ------------------------------------------------------------------------------------------------- elements
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
const key = (row) => `${row.namespace}/${row.name ?? row.pod}`;
const inOrder = new Intl.Collator("en", { numeric: true });
const byPod = (a, b) => inOrder.compare(a.pod, b.pod);
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function since(text) {
  if (!text) return "";
  const seconds = Math.max(0, (Date.now() - Date.parse(text)) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}
function until(text) {
  if (!text) return "";
  const seconds = (Date.parse(text) - Date.now()) / 1000;
  if (seconds <= 0) return "now";
  return seconds < 3600 ? `${Math.ceil(seconds / 60)} min` : seconds < 86400 * 2 ? `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min` : `${Math.floor(seconds / 86400)} d`;
}
const clock = (text) => (text ? new Date(text).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }) : "");
const age = (view) => (view.age === null ? "never" : `${view.age < 10 ? view.age.toFixed(1) : Math.round(view.age)} s ago${view.stale ? " (stale)" : ""}`);

function matches(...texts) {
  return !ui.filter || texts.some((text) => String(text ?? "").toLowerCase().includes(ui.filter));
}
const workerMatches = (row) =>
  matches(row.pod, row.slurmNode, row.kubernetesNode, row.summary, row.stateReason, row.nodeset, row.removal, row.problem, row.blocked && row.blocked.reason, ...row.jobs, ...row.state);

// -------------------------------------------------------------------------------------------------- rendering
function schedule() {
  if (ui.due) return;
  ui.due = true;
  requestAnimationFrame(() => {
    ui.due = false;
    render();
  });
}

function render() {
  const workers = [...model.workers.values()];
  renderTiles(workers);
  renderEmpty();
  renderClusters(workers);
  renderBlocked(workers);
  renderJobs();
  renderDecisions();
  renderDetail();
  const operator = model.operator;
  $("foot").textContent = operator
    ? `Read-only. Operator ${operator.version}${operator.identity ? `, ${operator.identity.replace(/_[^_]*$/, "")}` : ""}, leading for ${since(operator.since)}. ` +
      (model.scope && !model.scope.all ? `Shown: ${model.scope.namespaces.join(", ")}.` : "Shown: all namespaces.")
    : "Read-only.";
}

function tile(label, value, small, hint, kind) {
  return el("div", { class: `tile ${kind || ""}` },
    el("div", { class: "label" }, label),
    el("div", { class: "value" }, String(value), small ? el("small", {}, ` ${small}`) : ""),
    el("div", { class: "hint" }, hint || " "));
}

function renderTiles(workers) {
  const clusters = [...model.clusters.values()];
  const nodesets = [...model.nodesets.values()];
  const jobs = {};
  for (const cluster of clusters) for (const [state, count] of Object.entries(cluster.jobs.byState)) jobs[state] = (jobs[state] || 0) + count;
  const blocked = workers.filter((row) => row.blocked);
  const desired = nodesets.reduce((sum, row) => sum + row.desired, 0);
  const ready = workers.filter((row) => row.ready && !row.deleting).length;
  const lost = clusters.filter((row) => !row.connected).length;
  const count = (state) => workers.filter((row) => row.summary === state).length;
  const oldest = blocked.map((row) => row.blocked.since).filter(Boolean).sort()[0];
  $("tiles").hidden = !clusters.length && !nodesets.length;
  $("tiles").replaceChildren(
    tile("Slurm clusters", clusters.length, "", lost ? `${lost} not connected` : "all connected", lost ? "bad" : ""),
    tile("Workers ready", ready, `of ${desired}`, `${count("busy") + count("draining")} busy, ${count("idle")} idle`, ready < desired ? "warn" : ""),
    tile("Jobs running", jobs.RUNNING || 0, "", `${jobs.PENDING || 0} pending`),
    tile("Down or unknown", count("down") + count("unknown"), "", `${count("down")} down, ${count("unknown")} unknown`, count("down") ? "bad" : ""),
    tile("Blocked actions", blocked.length, "", blocked.length ? `oldest for ${since(oldest)}` : "nothing waits", blocked.length ? "warn" : ""));
}

function renderEmpty() {
  const empty = ui.live && !model.clusters.size && !model.nodesets.size;
  const box = $("empty");
  box.hidden = !empty;
  if (!empty || box.childElementCount) return;
  const step = (title, text, command) => el("li", {}, el("h3", {}, title), el("p", { class: "sub" }, text), command ? el("pre", {}, command) : "");
  box.append(
    el("h2", {}, "The operator runs, and there is no Slurm cluster yet"),
    el("p", { class: "sub" }, "Create one, and it appears here by itself."),
    el("ol", {},
      step("Install a Slurm cluster", "The chart creates a Controller, a RestApi, login pods and a NodeSet of workers.", "helm install slurm charts/slurm --namespace slurm --create-namespace"),
      step("Watch it come up", "slurmctld first, then slurmrestd, then the workers register.", "kubectl --namespace slurm get slurm,pods"),
      step("Run a first job", "Log in, or use the login pod.", "kubectl --namespace slurm exec deployment/slurm-login-slinky -- srun hostname")));
}

function pill(text, kind) {
  return el("span", { class: `pill ${kind || ""}` }, text);
}

function condition(row, type) {
  return row.conditions.find((one) => one.type === type);
}

function renderClusters(workers) {
  const byNodeset = new Map();
  for (const row of workers) {
    const name = `${row.namespace}/${row.nodeset}`;
    if (!byNodeset.has(name)) byNodeset.set(name, []);
    byNodeset.get(name).push(row);
  }
  const named = new Map([...model.clusters]);
  // A NodeSet whose Controller does not exist must be seen as well.
  for (const nodeset of model.nodesets.values()) {
    const name = `${nodeset.namespace}/${nodeset.cluster}`;
    if (!named.has(name)) named.set(name, null);
  }
  const used = new Set();
  const cards = [...named.keys()].sort().map((name) => clusterCard(name, named.get(name), byNodeset, used));
  const focused = document.activeElement;
  $("clusters").replaceChildren(...cards);
  // A square that is moved into its new card loses the focus of the keyboard.
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  for (const name of ui.grids.keys()) if (!used.has(name)) ui.grids.delete(name);
  for (const name of ui.cells.keys()) if (!model.workers.has(name)) ui.cells.delete(name);
}

function clusterCard(name, row, byNodeset, used) {
  const [namespace, short] = name.split("/");
  const nodesets = [...model.nodesets.values()].filter((one) => one.namespace === namespace && one.cluster === short).sort((a, b) => (a.name < b.name ? -1 : 1));
  const head = el("div", { class: "cluster-head" }, el("h2", {}, el("span", { class: "ns" }, `${namespace} /`), short));
  const card = el("article", { class: "card" }, head);
  if (!row) {
    head.append(pill("no Controller", "bad"));
    card.append(el("p", { class: "why" }, `The NodeSets name the Controller ${short}, which does not exist.`));
  } else {
    head.append(pill(row.connected ? "Connected" : row.reason || "Not connected", row.connected ? "good" : "bad"));
    if (row.external) head.append(pill("external slurmctld"));
    if (row.suspicion) head.append(pill("list of nodes not trusted", "warn"));
    const facts = el("div", { class: "facts" });
    const fact = (label, value) => value && facts.append(el("span", {}, `${label} `, el("b", {}, value)));
    fact("Slurm", row.slurmVersion);
    fact("slurmctld", row.slurmctld.map((one) => `${one.host} ${one.responding ? (one.primary || row.slurmctld.length === 1 ? "active" : "standby") : "not responding"}`).join(", "));
    fact("nodes listed", age(row.views.nodes));
    fact("jobs listed", age(row.views.jobs));
    fact("ClusterName", row.clusterName);
    card.append(facts);
    if (!row.connected) card.append(el("p", { class: "why" }, row.message, row.failingSince ? ` For ${since(row.failingSince)}. While Slurm does not answer, no worker is removed.` : ""));
    if (row.suspicion) card.append(el("p", { class: "why" }, row.suspicion));
  }
  for (const nodeset of nodesets) card.append(nodesetPart(nodeset, byNodeset.get(key(nodeset)) || [], used));
  if (!nodesets.length) card.append(el("p", { class: "why" }, "No NodeSet yet: this cluster has no workers of this operator."));
  return card;
}

function nodesetPart(nodeset, workers, used) {
  const head = el("div", { class: "nodeset-head" }, el("h3", {}, nodeset.name));
  const degraded = condition(nodeset, "Degraded");
  const progressing = condition(nodeset, "Progressing");
  if (nodeset.deleting) head.append(pill("being deleted", "warn"));
  if (degraded && degraded.status === "True") head.append(pill(degraded.reason, "bad"));
  else if (progressing && progressing.status === "True") head.append(pill(progressing.reason, "warn"));
  const old = nodeset.pods - nodeset.updated;
  head.append(el("span", { class: "ready" }, el("b", {}, `${nodeset.ready} / ${nodeset.desired}`), " ready", old > 0 && !nodeset.deleting ? `, ${old} of an older revision` : ""));
  const part = el("section", { class: "nodeset", "aria-label": `NodeSet ${nodeset.name}` }, head);
  if (degraded && degraded.status === "True") part.append(el("p", { class: "why" }, degraded.message));
  else if (progressing && progressing.status === "True") part.append(el("p", { class: "why" }, progressing.message));
  for (const wait of nodeset.waits.slice(0, 3)) part.append(el("p", { class: "why" }, `${wait.message}. `, wait.next));
  const bar = el("div", { class: "bar", role: "img", "aria-label": Object.entries(nodeset.states).map(([state, count]) => `${count} ${state}`).join(", ") || "no workers" });
  const legend = el("div", { class: "legend" });
  for (const state of STATES) {
    const count = nodeset.states[state];
    if (!count) continue;
    const piece = el("span", { class: `s-${state}` });
    piece.style.flexGrow = count;
    bar.append(piece);
    legend.append(el("span", {}, el("i", { class: `s-${state}` }), `${count} ${state}`));
  }
  if (workers.length) part.append(bar, legend);
  part.append(grid(nodeset, workers, used));
  return part;
}

function grid(nodeset, workers, used) {
  const name = key(nodeset);
  used.add(name);
  let shown = ui.grids.get(name);
  if (!shown) {
    shown = { box: el("div", { class: "grid" }), order: "" };
    ui.grids.set(name, shown);
  }
  shown.box.className = `grid ${workers.length > 1500 ? "crowd many" : workers.length > 250 ? "many" : ""}`;
  workers.sort(byPod);
  const cells = workers.map(cell);
  const order = workers.map((row) => row.pod).join(" ");
  if (order !== shown.order) {
    shown.order = order;
    shown.box.replaceChildren(...cells);
  }
  return shown.box;
}

function cell(row) {
  const name = key(row);
  let known = ui.cells.get(name);
  if (!known) {
    const button = el("button", { type: "button", on: { click: () => select(name) } });
    known = { button, row: null, dim: null };
    ui.cells.set(name, known);
  }
  const dim = !workerMatches(row);
  if (known.row !== row || known.dim !== dim) {
    known.row = row;
    known.dim = dim;
    known.button.className = `cell s-${row.summary}${row.blocked ? " stuck" : ""}${dim ? " dim" : ""}`;
    const text = `${row.pod}: ${row.summary}${row.state.length ? ` (${row.state.join("+")})` : ""}${row.jobCount ? `, ${plural(row.jobCount, "job")}` : ""}${row.blocked ? `, blocked: ${row.blocked.reason}` : ""}`;
    known.button.title = text;
    known.button.setAttribute("aria-label", text);
  }
  return known.button;
}

function renderBlocked(workers) {
  const blocked = workers.filter((row) => row.blocked && workerMatches(row));
  blocked.sort((a, b) => (a.blocked.since || "").localeCompare(b.blocked.since || "") || byPod(a, b));
  $("blocked-card").hidden = !workers.some((row) => row.blocked);
  $("blocked-count").textContent = blocked.length;
  $("blocked").replaceChildren(...blocked.slice(0, MOST_BLOCKED).map((row) =>
    el("div", { class: "block" },
      el("div", { class: "who" },
        el("button", { class: "link", type: "button", on: { click: () => select(key(row)) } }, row.pod),
        el("span", { class: "sub" }, row.blocked.action === "undrain" ? "stays drained" : `${words(row.blocked.cause)}`)),
      el("div", {}, el("b", {}, words(row.blocked.reason)), `: ${row.blocked.message}`, el("div", { class: "next" }, row.blocked.next)),
      el("div", { class: "since" }, row.blocked.since ? `for ${since(row.blocked.since)}` : ""))),
    blocked.length > MOST_BLOCKED ? el("p", { class: "sub" }, `and ${blocked.length - MOST_BLOCKED} more`) : "");
}

// ScaleIn becomes "scale in", JobsRunning "jobs running".
const words = (text) => text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

function jobState(job) {
  return job.state[0] || "UNKNOWN";
}

function renderJobs() {
  const rows = model.jobs.flatMap((cluster) => cluster.jobs.map((job) => ({ ...job, cluster: cluster.cluster, namespace: cluster.namespace })));
  const errors = model.jobs.filter((cluster) => cluster.error);
  const counts = {};
  for (const cluster of model.jobs) for (const [state, count] of Object.entries(cluster.byState)) counts[state] = (counts[state] || 0) + count;
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  $("jobs-card").hidden = !model.clusters.size;
  $("jobs-count").textContent = total;
  const tabs = [["all", total], ["RUNNING", counts.RUNNING || 0], ["PENDING", counts.PENDING || 0]];
  $("job-tabs").replaceChildren(...tabs.map(([name, count]) =>
    el("button", { type: "button", "aria-pressed": String(ui.tab === name), on: { click: () => { ui.tab = name; schedule(); } } }, `${name === "all" ? "All" : words(name)} ${count}`)));
  const shown = rows.filter((job) => (ui.tab === "all" || job.state.includes(ui.tab)) && matches(job.id, job.name, job.user, job.partition, job.nodes, job.stateReason, ...job.state));
  $("jobs").tBodies[0].replaceChildren(...shown.slice(0, MOST_JOBS).map((job) =>
    el("tr", {},
      el("td", { class: "num" }, String(job.id)),
      el("td", {}, job.name),
      el("td", {}, job.user),
      el("td", {}, el("span", { class: `state ${jobState(job)}` }, words(jobState(job)))),
      el("td", { class: "where" }, job.nodes || (job.stateReason && job.stateReason !== "None" ? words(job.stateReason) : "") || job.partition),
      el("td", {}, jobTime(job)))));
  const received = rows.length;
  const notes = errors.map((cluster) => `${cluster.namespace}/${cluster.cluster}: ${cluster.error}`);
  if (!notes.length && !total) notes.push("No jobs.");
  if (received < total) notes.push(`${received} of ${total} jobs are listed.`);
  if (shown.length > MOST_JOBS) notes.push(`The first ${MOST_JOBS} are shown: use the filter.`);
  $("jobs-note").textContent = notes.join(" ");
}

function jobTime(job) {
  const state = jobState(job);
  if (state === "RUNNING") return job.timeLimitMinutes === null ? "no limit" : `${until(job.endTime)} left`;
  if (state === "PENDING") return `for ${since(job.submitTime)}`;
  return job.endTime ? clock(job.endTime) : "";
}

function decision(row) {
  return el("li", { class: `${row.type} ${row.warning ? "warning" : ""}` },
    el("time", { datetime: row.at, title: row.at }, clock(row.at)),
    el("div", {},
      el("span", { class: "what" }, words(row.what)), " ",
      el("span", { class: "object" }, row.object.kind === "Pod" ? row.object.name : `${row.object.kind} ${row.object.name}`),
      row.count > 1 ? el("span", { class: "sub" }, ` ×${row.count}`) : "",
      el("div", { class: "reason" }, row.why)));
}

function renderDecisions() {
  const shown = model.decisions.filter((row) => matches(row.object.name, row.what, row.why, row.nodeset));
  $("decisions-card").hidden = !model.decisions.length;
  $("decisions").replaceChildren(...shown.slice(0, MOST_DECISIONS).map(decision));
}

// --------------------------------------------------------------------------------------------- one worker
async function select(name) {
  ui.selected = name;
  ui.history = [];
  schedule();
  const row = model.workers.get(name);
  if (!row) return;
  const query = new URLSearchParams({ kind: "Pod", namespace: row.namespace, name: row.pod, limit: "30" });
  try {
    const reply = await fetch(`api/v1/history?${query}`);
    if (reply.ok && ui.selected === name) {
      ui.history = (await reply.json()).items;
      schedule();
    }
  } catch {
    // The page shows elsewhere that the operator cannot be reached.
  }
}

function renderDetail() {
  const box = $("detail");
  const row = ui.selected && model.workers.get(ui.selected);
  box.hidden = !row;
  if (!row) return;
  const list = el("dl");
  const fact = (label, value) => value && list.append(el("dt", {}, label), el("dd", {}, value));
  fact("NodeSet", `${row.namespace} / ${row.nodeset}`);
  fact("Kubernetes node", row.kubernetesNode || "not scheduled");
  fact("Slurm node", row.slurmNode);
  fact("Slurm state", row.known === "known" ? row.state.join(" + ") : row.known === "absent" ? "not listed by Slurm" : `unknown: ${row.unknownMessage || row.unknownReason}`);
  fact("Reason", row.stateReason && `${row.stateReason}${row.stateReasonBy ? ` (${row.stateReasonBy})` : ""}`);
  fact("Drained by", row.drainedBy === "other" ? "a person or Slurm" : row.drainedBy && "the operator");
  fact("Pod", row.withoutPod ? "none" : `${row.phase}${row.ready ? ", ready" : ", not ready"}${row.createdAt ? `, ${since(row.createdAt)} old` : ""}`);
  fact("Problem", row.problem);
  fact("Jobs", row.jobCount ? `${row.jobs.join(", ")}${row.jobCount > row.jobs.length ? " …" : ""}${row.jobsEnd ? `, at the latest until ${clock(row.jobsEnd)} (${until(row.jobsEnd)})` : row.jobsEndKnown ? "" : ", end unknown or unlimited"}` : row.known === "unknown" ? "unknown" : "none");
  fact("Protection", row.protected ? "Kubernetes may not remove it" : "none");
  fact("Cordoned", row.cordoned && (row.cordonedBy ? `by the operator: ${words(row.cordonedBy)}` : "by a person"));
  fact("Removal", row.removal && words(row.removal));
  fact("Requested", row.request && `${row.request.by || "by a person"}${row.request.at ? `, ${since(row.request.at)} ago` : ""}`);
  fact("Revision", `${row.revision}${row.current ? "" : " (older)"}`);
  fact("Partitions", row.partitions.join(", "));
  box.replaceChildren(
    el("header", {}, el("h2", {}, row.pod, pill(row.summary)), el("button", { class: "quiet", type: "button", "aria-label": "Close", on: { click: () => { ui.selected = null; schedule(); } } }, "✕")),
    row.blocked ? el("div", { class: "box" }, el("b", {}, row.blocked.action === "undrain" ? "Stays drained" : `${words(row.blocked.cause)} is blocked: ${words(row.blocked.reason)}`), el("span", {}, row.blocked.message), el("span", { class: "sub" }, row.blocked.next)) : "",
    list,
    ui.history.length ? el("h3", {}, "What the operator did") : "",
    ui.history.length ? el("ol", { class: "timeline" }, ui.history.map(decision)) : "");
}

// ----------------------------------------------------------------------------------------------------- data
function take(rows, table) {
  for (const row of rows) table.set(key(row), row);
}

function live(state, text) {
  ui.live = state;
  $("live").className = `live ${state ? "on" : "off"}`;
  $("live").textContent = text;
}

function connect() {
  const stream = new EventSource("api/v1/stream");
  stream.addEventListener("snapshot", (event) => {
    const data = JSON.parse(event.data);
    for (const name of ["clusters", "nodesets", "workers"]) {
      model[name].clear();
      take(data[name], model[name]);
    }
    model.decisions = data.decisions;
    model.operator = data.operator;
    model.scope = data.scope;
    $("notice").hidden = true;
    live(true, "live");
    schedule();
  });
  stream.addEventListener("update", (event) => {
    const data = JSON.parse(event.data);
    for (const name of ["clusters", "nodesets", "workers"]) {
      for (const gone of data.removed[name]) model[name].delete(gone);
      take(data[name], model[name]);
    }
    model.decisions = [...data.decisions, ...model.decisions.filter((old) => !data.decisions.some((row) => row.first === old.first && row.what === old.what && row.why === old.why && key(row.object) === key(old.object)))].slice(0, MOST_DECISIONS);
    schedule();
  });
  stream.onerror = async () => {
    live(false, "reconnecting…");
    if (stream.readyState === EventSource.CLOSED) {
      await explain();
      setTimeout(connect, 3000);
    }
  };
}

// The browser does not say why a stream was refused; another request does.
async function explain() {
  let text = "The operator cannot be reached.";
  try {
    const reply = await fetch("api/v1/clusters");
    const content = await reply.json();
    text = reply.ok ? "" : content.error.message;
  } catch {
    // Nothing more is known.
  }
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

async function readJobs() {
  if (!document.hidden && ui.live && model.clusters.size) {
    try {
      const reply = await fetch("api/v1/jobs");
      if (reply.ok) {
        model.jobs = (await reply.json()).items;
        schedule();
      }
    } catch {
      // The stream shows that the operator cannot be reached.
    }
  }
  setTimeout(readJobs, model.jobs.length ? JOBS_EVERY : 1000);
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch {
    // It lasts as long as the page, then.
  }
}

try {
  const saved = localStorage.getItem("theme");
  if (saved) document.documentElement.dataset.theme = saved;
} catch {
  // Without storage the browser's own setting counts.
}
$("theme").addEventListener("click", theme);
$("filter").addEventListener("input", (event) => {
  ui.filter = event.target.value.trim().toLowerCase();
  schedule();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    ui.selected = null;
    schedule();
  }
});
setInterval(schedule, 5000);
connect();
readJobs();
