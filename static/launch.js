/* The summary beside the launch form follows what is chosen. */

const form = document.getElementById("launch");
const UNITS = { MiB: 1, GiB: 1024, TiB: 1024 * 1024 };
const ticks = () => [...form.querySelectorAll("input[name=gpu]:checked")];
const show = (name, text) => document.querySelectorAll(`[data-sum=${name}]`).forEach(node => { node.textContent = text });

function quarter(text) {
  const match = /^([1-9][0-9]{0,11}) ?(MiB|GiB|TiB)$/.exec(text.trim());
  if (!match) return "";
  const mib = Math.floor(Number(match[1]) * UNITS[match[2]] / 4);
  return mib >= 1024 && mib % 1024 === 0 ? `${mib / 1024}GiB` : `${mib}MiB`;
}

function counted(models) {
  const times = new Map();
  for (const model of models) times.set(model, (times.get(model) ?? 0) + 1);
  return [...times].map(([model, count]) => `${count} × ${model}`).join(" + ");
}

function followGpus() {
  const words = document.getElementById("sum-gpus");
  const way = form.elements.gpu_way.value, chosen = ticks();
  const late = way === "these" ? chosen.filter(tick => !("can" in tick.dataset)).map(tick => tick.dataset.short).join(", ") : "";
  if (way === "any") show("gpus", `${form.elements.gpu_count.value || 0} × ${form.elements.gpu_model?.value || "GPU"}`);
  else show("gpus", way === "these" && chosen.length ? counted(chosen.map(tick => tick.dataset.model)) : words.dataset.none);
  const hosts = [...new Set(chosen.map(tick => tick.dataset.host))].join(", ");
  const cards = chosen.map(tick => tick.dataset.short).join(", ");
  const warning = late && words.dataset.late.replace("{cards}", late);
  show("cards", way === "any" ? words.dataset.free : way === "these" && cards ? warning || `${hosts}: ${cards}` : "");
  words.classList.toggle("late", Boolean(late));
  if (warning && warning !== words.said) window.berthSay(warning);
  words.said = warning;
}

function follow() {
  const image = form.querySelector("input[name=image_id]:checked");
  if (image) {
    show("image", image.dataset.title);
    document.querySelectorAll("[data-ssh-only]").forEach(node => { node.hidden = image.dataset.jupyter === "yes" });
  }
  show("name", form.elements.name.value);
  show("cpus", form.elements.cpus.value);
  show("memory", form.elements.memory.value);
  form.elements.shm.placeholder = quarter(form.elements.memory.value);
  show("shm", form.elements.shm.value || form.elements.shm.placeholder);
  followGpus();
}

if (form) {
  form.addEventListener("input", follow);
  form.addEventListener("berth:cards", follow);
  follow();
}
