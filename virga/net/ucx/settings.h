#pragma once

#include <string>

#include "virga/net/ucx/context.h"

namespace virga::net::ucx {

// UCX settings for the two ways, chosen by measurement (bench/transport_bench.cc). They are set
// here so that nobody needs UCX_* variables.
Context::Options inside_host_settings(int event_descriptor);
Context::Options between_hosts_settings(int event_descriptor, const std::string& transports,
                                        const std::string& devices);

}  // namespace virga::net::ucx
