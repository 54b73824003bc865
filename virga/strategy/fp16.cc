#include "virga/strategy/dense.h"

namespace virga::strategy {

std::unique_ptr<Strategy> make_fp16(const StrategyContext& context) {
  return std::make_unique<Dense>(context, DType::kFloat16);
}

}  // namespace virga::strategy
