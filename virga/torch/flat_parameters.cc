#include "virga/torch/flat_parameters.h"

#include <array>
#include <fmt/format.h>
#include <memory>
#include <openssl/evp.h>
#include <torch/torch.h>
#include <unordered_set>

#include "virga/base/error.h"

namespace virga::train {
namespace {

// A tensor over part of `flat` that autograd does not take for a view of it: such views can't be
// detached in place, which Optimizer::zero_grad() of libtorch 1.13 does. Keeps `flat` alive.
torch::Tensor alias(const torch::Tensor& flat, int64_t offset, at::IntArrayRef sizes) {
  return torch::from_blob(
      flat.data_ptr<float>() + offset, sizes, [flat](void*) {}, flat.options());
}

// The parameters in order of registration, each once.
std::vector<std::pair<std::string, torch::Tensor>> unique_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

void check(const std::string& name, const torch::Tensor& parameter, const torch::Device& device) {
  require(parameter.scalar_type() == torch::kFloat32, "parameter {} is {}; only fp32 can be trained", name,
          torch::toString(parameter.scalar_type()));
  require(parameter.device() == device, "parameter {} is on {}, the ones before it on {}; one replica is on one device",
          name, parameter.device().str(), device.str());
}

}  // namespace

FlatParameters::FlatParameters(torch::nn::Module& module) {
  int64_t total = 0;
  for (auto& [name, parameter] : unique_parameters(module)) {
    if (!parameter.requires_grad()) continue;
    check(name, parameter, slices_.empty() ? parameter.device() : slices_[0].parameter.device());
    slices_.push_back({name, parameter, total, parameter.numel()});
    total += parameter.numel();
  }
  require(!slices_.empty(), "the model has no trainable parameter");
  for (const auto& item : module.named_buffers()) buffers_.emplace_back(item.key(), item.value());

  values_ = torch::empty({total}, slices_[0].parameter.options().requires_grad(false));
  gradients_ = torch::zeros_like(values_);
  const torch::NoGradGuard no_grad;
  for (ParameterSlice& slice : slices_) {
    const torch::Tensor place = alias(values_, slice.offset, slice.parameter.sizes());
    place.copy_(slice.parameter);
    slice.parameter.set_data(place);
  }
  zero_grad();
}

torch::Tensor FlatParameters::gradient_slice(const ParameterSlice& slice) const {
  return alias(gradients_, slice.offset, slice.parameter.sizes());
}

void FlatParameters::zero_grad() {
  for (ParameterSlice& slice : slices_) slice.parameter.mutable_grad().reset();
}

void FlatParameters::collect_gradient(size_t index) {
  ParameterSlice& slice = slices_.at(index);
  torch::Tensor& gradient = slice.parameter.mutable_grad();
  if (gradient.defined() && gradient.data_ptr() == gradients_.data_ptr<float>() + slice.offset) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor place = gradient_slice(slice);
  if (gradient.defined()) {
    place.copy_(gradient);
  } else {
    place.zero_();
  }
  gradient = std::move(place);
}

std::string parameters_sha256(const torch::nn::Module& module) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  bool fine = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const auto& [name, parameter] : unique_parameters(module)) {
    const torch::Tensor bytes = parameter.detach().cpu().contiguous();
    fine = fine && EVP_DigestUpdate(context.get(), bytes.data_ptr(), bytes.nbytes()) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  fine = fine && EVP_DigestFinal_ex(context.get(), digest.data(), &length) == 1;
  if (!fine) fail(ErrorCode::kUnavailable, "OpenSSL can't compute SHA-256 here");
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace virga::train
