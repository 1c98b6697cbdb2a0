# SPDX-License-Identifier: Apache-2.0

"""URLs of the panel."""

from django.urls import path

from secondary_dashboard.content.accounting import views

urlpatterns = [
    path('', views.AccountingView.as_view(), name='index'),
]
