/* Small behaviours of every page. Without this file everything still works, by hand. */

const root = document.documentElement;
const say = document.getElementById("say");
const announce = text => { say.textContent = ""; requestAnimationFrame(() => { say.textContent = text }) };

/* theme: as the system → light → dark */
const CHOICES = ["auto", "light", "dark"];
document.addEventListener("click", event => {
  const button = event.target.closest("[data-theme-next]");
  if (!button) return;
  const next = CHOICES[(CHOICES.indexOf(root.dataset.themeChoice) + 1) % CHOICES.length];
  window.berthTheme(next);
  announce(button.getAttribute(`data-say-${next}`));
});

/* copy: the clipboard needs https or localhost; elsewhere the old command, and at the least the text is selected */
async function copy(box) {
  getSelection().selectAllChildren(box);
  try { await navigator.clipboard.writeText(box.textContent); return true } catch { /* no permission, or plain http */ }
  try { return document.execCommand("copy") } catch { return false }
}
document.addEventListener("click", async event => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const done = await copy(button.closest(".b-copy").querySelector("pre"));
  const text = done ? document.body.dataset.copied : document.body.dataset.selected;
  const word = button.querySelector("span");
  const was = word.dataset.was ?? word.textContent;
  word.dataset.was = was;
  if (done) { word.textContent = text; button.classList.add("done") }
  announce(text);
  clearTimeout(button.timer);
  button.timer = setTimeout(() => { word.textContent = was; button.classList.remove("done") }, 1600);
});

/* typing a name to confirm; the server checks it again */
for (const input of document.querySelectorAll("[data-type-to-confirm]")) {
  const button = input.form.querySelector("[data-confirmed]");
  const check = () => { button.setAttribute("aria-disabled", String(input.value.trim() !== input.dataset.typeToConfirm)) };
  input.addEventListener("input", check);
  check();
}

/* a form that takes its time is not sent twice */
document.addEventListener("submit", event => {
  const form = event.target;
  if (form.target || form.dataset.sent) { if (form.dataset.sent) event.preventDefault(); return }
  form.dataset.sent = "yes";
  form.querySelectorAll("button[type=submit]").forEach(button => button.setAttribute("aria-busy", "true"));
});
addEventListener("pageshow", event => {
  if (!event.persisted) return;
  document.querySelectorAll("form[data-sent]").forEach(form => {
    delete form.dataset.sent;
    form.querySelectorAll("[aria-busy]").forEach(button => button.removeAttribute("aria-busy"));
  });
});

/* times: the server writes UTC, the reader has a zone */
const lang = root.lang;
const full = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "medium" });
const short = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat(lang, { timeStyle: "short" });
window.berthTimes = within => {
  for (const time of within.querySelectorAll("time[data-time]")) {
    const at = new Date(time.dateTime);
    time.title = full.format(at);
    if (time.dataset.time === "clock") {
      time.textContent = at.toDateString() === new Date().toDateString() ? clock.format(at) : short.format(at);
    }
  }
};
window.berthTimes(document);

/* n launches, as the button says */
document.addEventListener("keydown", event => {
  if (event.key !== "n" || event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  document.querySelector("a[data-key=n]")?.click();
});

window.berthSay = announce;
