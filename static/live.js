/* Keeps parts of a page as the server sees them. The server answers the same part again; only what differs changes,
   so focus, selection, scrolling and open folds stay. Nothing is asked while nobody looks. */

const key = node => node.nodeType === 1 ? node.id || node.dataset.key : undefined;
const kind = node => node.nodeType === 1 ? node.tagName + "#" + (key(node) ?? "") : node.nodeType;

/* What the reader did stays: a fold that was opened, a form that was sent, a box that was ticked, a text that was typed; and all of a data-keep, once it is there. */
const DONE_HERE = ["open", "data-sent", "aria-busy"];
const CHOSEN_HERE = ["checked", "selected", "value"];

function isTheirs(node, name) {
  if (!["INPUT", "SELECT", "TEXTAREA", "OPTION"].includes(node.tagName) || node.type === "hidden") return false;
  /* A box that is ticked or has the focus is not shut: whoever ticked it sees that it is late, and may take it back. */
  return CHOSEN_HERE.includes(name) || name === "disabled" && (node.checked || node === document.activeElement);
}

function patch(old, fresh) {
  if (old.nodeType !== 1) { if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue; return }
  if (old.dataset && "keep" in old.dataset) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !DONE_HERE.includes(name) && !isTheirs(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !isTheirs(old, name)) old.setAttribute(name, value);
  }
  if (old.querySelector?.(":scope > button.done, :scope > .done")) return;    /* says “Copied” for a moment */
  patchChildren(old, fresh);
}

/* What is gone but was ticked stays until it is unticked, marked. */
const isGone = node => node?.nodeType === 1 && "gone" in node.dataset;
function leave(child) {
  if (child.querySelector("input:checked")) child.dataset.gone = "";
  else child.remove();
}

function patchChildren(old, fresh) {
  const named = new Map([...old.children].filter(key).map(child => [kind(child), child]));
  const kept = new Set([...fresh.children].filter(key).map(kind));
  for (const child of named.values()) if (!kept.has(kind(child))) leave(child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    while (isGone(at) && !kept.has(kind(at))) at = at.nextSibling;
    let same = key(wanted) ? named.get(kind(wanted)) : undefined;
    if (!same && at && !key(at) && kind(at) === kind(wanted)) same = at;
    if (!same) { old.insertBefore(wanted, at); continue }
    if (same === at) at = at.nextSibling; else old.insertBefore(same, at);
    patch(same, wanted);
  }
  while (at) { const next = at.nextSibling; if (!isGone(at)) at.remove(); at = next }
}

/* A log is followed while its end is in sight; who reads further up stays where they are. */
const ENDS_WITHIN_PX = 24;
const atEnd = box => box.scrollHeight - box.scrollTop - box.clientHeight <= ENDS_WITHIN_PX;
const logs = within => [...within.querySelectorAll("[data-follow]")];
const follow = box => { box.scrollTop = box.scrollHeight };

function take(live, html) {
  const fresh = new DOMParser().parseFromString(html, "text/html").getElementById(live.id);
  if (!fresh) return;
  window.berthTimes(fresh);
  const focused = live.contains(document.activeElement);
  const before = live.dataset.say;
  const followed = new Map(logs(live).map(box => [box, atEnd(box)]));
  patch(live, fresh);
  for (const box of logs(live)) if (followed.get(box) ?? true) follow(box);
  if (focused && !live.contains(document.activeElement)) live.querySelector("h1, h2")?.focus();
  if (live.dataset.say && live.dataset.say !== before) window.berthSay(live.dataset.say);
  if (live.dataset.title) document.title = live.dataset.title;
  live.dispatchEvent(new Event("berth:live"));
}

function warn(text) {
  const box = document.getElementById("live-lost");
  if (!box) return;
  box.hidden = !text;
  box.querySelector("[data-text]").textContent = text;
}

function keep(live) {
  let timer, stopped = false, failures = 0, asked = 0;

  async function ask() {
    clearTimeout(timer);
    if (stopped || document.hidden) return;
    const turn = ++asked;       /* an answer that a newer question has overtaken is dropped */
    try {
      const answer = await fetch(live.dataset.live, { headers: { Accept: "text/html, application/problem+json" } });
      const html = answer.ok ? await answer.text() : "";
      if (turn !== asked) return;
      if (answer.ok) {
        take(live, html);
        failures = 0;
        warn("");
      } else if (answer.status === 401 || answer.status === 404) {
        stopped = true;
        warn(live.dataset[answer.status === 401 ? "saySignedOut" : "sayGone"]);
      } else throw new Error(answer.status);
    } catch {
      if (turn !== asked) return;
      failures += 1;
      if (failures > 1) warn(live.dataset.sayLost);
    }
    const seconds = Math.min(30, Number(live.dataset.every || 5) * 2 ** Math.max(0, failures - 2));
    timer = setTimeout(ask, seconds * 1000);
  }

  timer = setTimeout(ask, Number(live.dataset.every || 5) * 1000);
  document.addEventListener("visibilitychange", ask);
  live.addEventListener("berth:ask", ask);
}

for (const live of document.querySelectorAll("[data-live]")) {
  logs(live).forEach(follow);
  keep(live);
}
