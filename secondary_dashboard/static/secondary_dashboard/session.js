// SPDX-License-Identifier: Apache-2.0
// A form that is sent after the end of a session: Horizon would go to the
// login, and all that was typed would be lost. So the session is verified
// before the form is sent.

(function () {
  'use strict';

  document.addEventListener('submit', function (event) {
    var form = $(event.target);
    if (!form.is('[data-secondary-session]')) {
      return;
    }
    if (form.data('verified')) {
      form.data('verified', false);
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    function send() {
      form.find('.secondary-expired').prop('hidden', true);
      form.data('verified', true);
      form[0].requestSubmit();
    }
    $.getJSON(form.data('secondarySession')).done(function (session) {
      form.find('[name="csrfmiddlewaretoken"]').val(session.csrf);
      send();
    }).fail(function (response) {
      if (response.status === 401) {
        form.find('.secondary-expired').prop('hidden', false);
      } else {
        // The response to the form tells the error.
        send();
      }
    });
  }, true);
}());
