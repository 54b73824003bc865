#include "virga/strategy/strategy.h"

namespace virga::strategy {

#define VIRGA_STRATEGY(name, description) std::unique_ptr<Strategy> make_##name(const StrategyContext&);
#include "virga/strategy/list.def"
#undef VIRGA_STRATEGY

const std::vector<StrategyEntry>& strategies() {
  static const std::vector<StrategyEntry> entries = {
#define VIRGA_STRATEGY(name, description) {#name, description, make_##name},
#include "virga/strategy/list.def"
#undef VIRGA_STRATEGY
  };
  return entries;
}

std::unique_ptr<Strategy> make_strategy(std::string_view name, const StrategyContext& context) {
  std::string known;
  for (const StrategyEntry& entry : strategies()) {
    if (entry.name == name) return entry.make(context);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  fail(ErrorCode::kInvalidArgument, "unknown strategy '{}'; known are {}", name, known);
}

Duration sum(const std::vector<TimeSpan>& spans) {
  Duration sum{0};
  for (const TimeSpan& span : spans) sum += span.length();
  return sum;
}

DType parse_value_dtype(std::string_view text) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (text == to_string(dtype)) return dtype;
  }
  fail(ErrorCode::kInvalidArgument, "unknown value dtype '{}'; known are fp32, fp16, bf16", text);
}

std::string to_text(const StrategyOptions& options) {
  return fmt::format("density={} value_dtype={} error_feedback={}", options.density,
                     virga::to_string(options.value_dtype), options.error_feedback);
}

}  // namespace virga::strategy
