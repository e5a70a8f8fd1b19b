/* The summary beside the launch form follows what is chosen. */

const form = document.getElementById("launch");
const UNITS = { MiB: 1, GiB: 1024, TiB: 1024 * 1024 };

function quarter(text) {
  const match = /^([1-9][0-9]{0,11}) ?(MiB|GiB|TiB)$/.exec(text.trim());
  if (!match) return "";
  const mib = Math.floor(Number(match[1]) * UNITS[match[2]] / 4);
  return mib >= 1024 && mib % 1024 === 0 ? `${mib / 1024}GiB` : `${mib}MiB`;
}

function follow() {
  const image = form.querySelector("input[name=image_id]:checked");
  const show = (name, text) => document.querySelectorAll(`[data-sum=${name}]`).forEach(node => { node.textContent = text });
  if (image) {
    show("image", image.dataset.title);
    document.querySelectorAll("[data-ssh-only]").forEach(node => { node.hidden = image.dataset.jupyter === "yes" });
  }
  show("name", form.elements.name.value);
  show("cpus", form.elements.cpus.value);
  show("memory", form.elements.memory.value);
  form.elements.shm.placeholder = quarter(form.elements.memory.value);
  show("shm", form.elements.shm.value || form.elements.shm.placeholder);
}

if (form) {
  form.addEventListener("input", follow);
  follow();
}
