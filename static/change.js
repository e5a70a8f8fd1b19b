/* Asks the server what the form would do as it is filled in. */

const form = document.getElementById("change");
const region = document.getElementById("preview");
const TYPING_MS = 250;
let timer;

function ask() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const sent = new URLSearchParams(new FormData(form));
    sent.delete("csrf_token");
    region.dataset.live = `${region.dataset.url}?${sent}`;
    region.dispatchEvent(new Event("berth:ask"));
  }, TYPING_MS);
}

function follow() {
  const said = region.querySelector("#preview-said b").textContent;
  document.querySelectorAll("[data-sum=said]").forEach(node => { node.textContent = said });
}

if (form) {
  form.addEventListener("input", ask);
  region.addEventListener("berth:live", follow);
  follow();
  ask();
}
