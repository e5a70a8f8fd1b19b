/* Cards in a form: the way to get GPUs follows the ticks, and what is gone says so. Comes before the form's own script. */

const form = document.querySelector("form.b-spec");
const ticks = () => [...form.querySelectorAll("input[name=gpu]:checked")];
const boxes = () => [...form.querySelectorAll("input[name=gpu]:not(:disabled)")];

/* A tick means “these”. Leaving that way takes the ticks off, for they would not count; coming back brings them again.
   What a workspace has already is ticked at first. */
let kept = form ? boxes().filter(box => "own" in box.dataset).map(box => box.value) : [];
function turn({ target }) {
  if (target.name === "gpu" && target.checked) form.querySelector("input[name=gpu_way][value=these]").checked = true;
  if (target.name !== "gpu_way") return;
  if (target.value === "these") {
    boxes().forEach(box => { box.checked ||= kept.includes(box.value) });
  } else if (ticks().length) {
    kept = ticks().map(box => box.value);
    ticks().forEach(box => { box.checked = false });
  }
}

function mark() {
  for (const tile of form.querySelectorAll("[data-gone]")) {
    tile.classList.remove("can");
    delete tile.querySelector("input")?.dataset.can;
  }
  form.dispatchEvent(new Event("berth:cards"));
}

if (form) {
  form.addEventListener("input", turn);
  document.getElementById("gpus-live").addEventListener("berth:live", mark);
}
