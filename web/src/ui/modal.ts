/** For `@attach`: show a dialog above everything else while it is in the document. */
export function modal(dialog: HTMLDialogElement): () => void {
  const before = document.activeElement;
  dialog.showModal();
  return () => {
    dialog.close();
    // The focus is lost if the dialog leaves the document as it closes.
    if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  };
}
