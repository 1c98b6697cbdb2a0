# SPDX-License-Identifier: Apache-2.0

"""URLs of the panel."""

from django.urls import path

from secondary_dashboard.content.capacity import views

urlpatterns = [
    path('', views.CapacityView.as_view(), name='index'),
]
