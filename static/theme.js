/* Runs before the first paint: the theme chosen in this browser, else the system's. */
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("berth-theme") || "auto" } catch { return "auto" } };
  const wear = choice => {
    root.dataset.themeChoice = choice;
    root.dataset.bsTheme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
  };
  wear(kept());
  dark.addEventListener("change", () => wear(kept()));
  addEventListener("storage", event => { if (event.key === "berth-theme") wear(kept()) });
  window.berthTheme = choice => { try { localStorage.setItem("berth-theme", choice) } catch { /* private window */ } wear(choice) };
})();
