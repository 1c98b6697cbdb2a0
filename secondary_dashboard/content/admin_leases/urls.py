# SPDX-License-Identifier: Apache-2.0

"""URLs of the panel."""

from django.urls import path

from secondary_dashboard.content.admin_leases import views

urlpatterns = [
    path('', views.AllLeasesView.as_view(), name='index'),
    path('timeline/', views.AllTimelinesView.as_view(), name='timeline'),
    path('<uuid:lease_id>/', views.LeaseView.as_view(), name='detail'),
]
