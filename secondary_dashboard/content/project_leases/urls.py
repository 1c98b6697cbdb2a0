# SPDX-License-Identifier: Apache-2.0

"""URLs of the panel of a project's leases."""

from django.urls import path

from secondary_dashboard.content.project_leases import views

urlpatterns = [
    path('', views.IndexView.as_view(), name='index'),
    path('create/', views.CreateView.as_view(), name='create'),
    path('quote/', views.QuoteView.as_view(), name='quote'),
    path('quote/<uuid:quote_id>/', views.OfferView.as_view(), name='offer'),
    path('session/', views.SessionView.as_view(), name='session'),
    path('timeline/', views.TimelineView.as_view(), name='timeline'),
    path('<uuid:lease_id>/', views.DetailView.as_view(), name='detail'),
]
