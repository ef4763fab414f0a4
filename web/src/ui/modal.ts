/** For `@attach`: a dialog that is over everything else for as long as it is there. */
export function modal(dialog: HTMLDialogElement): () => void {
  const before = document.activeElement;
  dialog.showModal();
  return () => {
    dialog.close();
    // A dialog that leaves the document with its end takes the focus along.
    if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  };
}
