// SPDX-License-Identifier: Apache-2.0
// Names of controls on our pages that Horizon leaves without one: screen
// readers read them.

(function () {
  'use strict';

  function name(part) {
    if (!$('body#secondary').length) {
      return;
    }
    $(part).find('a.close').attr('aria-label', gettext('Close'));
    $(part).find('.multi-select-header').attr(
      'aria-label', gettext('Select all'));
    $(part).find('tr[data-display] .table-row-multi-select').each(function () {
      $(this).attr('aria-label', $(this).closest('tr').attr('data-display'));
    });
  }

  // Horizon's own functions come first, and have added their controls then;
  // sorting draws the headers of tables again, until the page is loaded.
  horizon.addInitFunction(function () {
    horizon.modals.addModalInitFunction(name);
    name(document);
    // Rows are replaced while a lease changes.
    $('table.datatable').on('update', function () { name(this); });
  });
  $(window).on('load', function () { name(document); });
}());
