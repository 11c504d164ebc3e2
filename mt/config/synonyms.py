"""Names of options in other toolkits, tutorials and papers, and the options of ours that they mean."""

# Each option or section, or two options with " and " between them, and its names elsewhere.
_NAMES = {
    "data.path": "dataset dataset_name dataset_path data_path data_dir corpus corpus_path train_path "
    "train_data",
    "data.name": "config_name subset dataset_config",
    "data.src": "src_lang source source_lang source_language lang_src",
    "data.tgt": "tgt_lang trg trg_lang target target_lang target_language lang_tgt",
    "data.num_train_pairs": "max_samples max_train_samples num_train_samples",
    "data.held_out_fraction": "val_split valid_split validation_split test_size split_ratio",
    "data.max_length": "max_len max_seq_len max_seq_length seq_len seq_length max_sentence_length block_size "
    "max_position_embeddings max_positions src_seq_length tgt_seq_length max_source_length max_target_length "
    "max_source_positions max_target_positions",
    "tokenizer.kind": "level tokenization tokenizer_type subword subwords bpe",
    "tokenizer.path": "tokenizer_file tokenizer_path tokenizer_name",
    "tokenizer.lowercase": "lower do_lower_case lower_case",
    "tokenizer.min_frequency": "min_freq vocab_min_freq voc_min_freq word_min_frequency "
    "src_words_min_frequency tgt_words_min_frequency thresholdsrc thresholdtgt",
    "tokenizer.max_size": "vocab_size vocabulary_size src_vocab_size tgt_vocab_size max_vocab_size voc_limit "
    "num_merges num_operations bpe_merges merges nwordssrc nwordstgt dim_vocabs",
    "tokenizer.shared": "share_vocab shared_vocab joint_vocab joined_dictionary",
    "tokenizer.max_lines": "input_sentence_size max_sentences n_sample",
    "model.d_model": "hidden_size hidden_dim hid_dim emb_size emb_dim embed_dim embed_size embedding_dim "
    "embedding_size model_dim dim width n_embd encoder_embed_dim decoder_embed_dim dim_emb word_vec_size",
    "model.num_heads": "heads n_heads nhead n_head num_attention_heads attention_heads h "
    "encoder_attention_heads decoder_attention_heads transformer_heads",
    "model.num_encoder_layers and model.num_decoder_layers": "layers n_layers num_layers n_layer n depth "
    "num_hidden_layers",
    "model.num_encoder_layers": "enc_layers encoder_layers n_enc_layers enc_depth",
    "model.num_decoder_layers": "dec_layers decoder_layers n_dec_layers dec_depth",
    "model.d_ff": "ff_size ff_dim ffn_dim ffn_size dim_feedforward feedforward_dim d_hid d_inner pf_dim "
    "filter_size intermediate_size transformer_ff transformer_dim_ffn encoder_ffn_embed_dim encoder_ffn_dim",
    "model.dropout": "p_dropout drop_prob dropout_rate dropout_prob hidden_dropout transformer_dropout",
    "model.attention_dropout": "attn_dropout attn_pdrop attention_probs_dropout_prob "
    "transformer_dropout_attention",
    "model.activation_dropout": "relu_dropout ffn_dropout transformer_dropout_ffn",
    "model.activation": "activation_fn activation_function hidden_act act_fn nonlinearity",
    "model.norm_first": "pre_norm prenorm layer_norm normalize_before layernorm_position "
    "encoder_normalize_before decoder_normalize_before transformer_preprocess",
    "model.initial_std": "init_std initializer_range init_range init_weight_std",
    "model.share_embeddings": "share_all_embeddings shared_embeddings tie_embeddings tied_embeddings_all "
    "share_encoder_decoder_embeddings",
    # Source and target in JoeyNMT, target and output in Marian.
    "model.share_embeddings and model.tie_output": "tied_embeddings",
    "model.tie_output": "tie_weights tied_weights weight_tying tied_softmax tie_word_embeddings "
    "share_decoder_input_output_embed share_decoder_embeddings",
    "schedule.kind": "scheduler lr_scheduler lr_scheduler_type lr_schedule scheduling decay_method "
    "lr_decay_inv_sqrt",
    "schedule.learning_rate": "lr base_lr max_lr peak_lr init_lr initial_lr lr_max alpha_lr step_size "
    "learn_rate",
    "schedule.factor": "lr_factor scale_factor learning_rate_factor",
    "schedule.warmup_steps": "warmup warmup_updates num_warmup_steps n_warmup_steps warmup_iters "
    "learning_rate_warmup lr_warmup",
    "training.seed": "random_seed manual_seed",
    "training.device": "gpu gpus use_cuda cuda use_gpu accelerator",
    "training.precision": "amp fp16 bf16 dtype mixed_precision half use_amp autocast model_dtype "
    "compute_dtype",
    "training.tf32": "allow_tf32",
    "training.compile": "torch_compile",
    "training.batch_tokens": "batch_size train_batch_size per_device_train_batch_size batch bs max_tokens "
    "tokens_per_batch mini_batch mini_batch_words",
    "training.num_micro_batches": "accum_steps accumulation_steps grad_accum grad_accumulation "
    "gradient_accumulation gradient_accumulation_steps accum_count update_freq batch_multiplier "
    "optimizer_delay",
    "training.label_smoothing": "smoothing label_smooth label_smoothing_factor eps_ls",
    "training.adam_beta1 and training.adam_beta2": "betas adam_betas",
    "training.adam_beta1": "beta1",
    "training.adam_beta2": "beta2",
    "training.adam_epsilon": "eps adam_eps epsilon",
    "training.weight_decay": "wd l2 l2_regularization decay",
    "training.clip_norm": "clip grad_clip gradient_clip clip_grad clip_grad_norm gradient_clipping "
    "max_grad_norm gradient_clip_val max_norm",
    "training.ema_decay": "ema moving_average_decay average_decay exponential_smoothing",
    "training.max_steps": "steps num_steps max_updates max_update iterations max_iters num_iterations "
    "train_steps num_train_steps updates after_batches",
    "training.max_epochs": "epochs epoch num_epochs n_epochs max_epoch num_train_epochs nb_epochs "
    "after_epochs",
    "training.log_every_steps": "log_every log_interval logging_freq logging_steps report_every print_every",
    "validation.every_steps": "val_every eval_every eval_steps eval_interval valid_steps validation_freq "
    "val_interval valid_every validate_every valid_freq validate_interval_updates",
    "validation.metric": "eval_metric early_stopping_metric metric_for_best_model best_metric",
    "validation.patience": "early_stopping early_stop early_stopping_patience",
    "validation.batch_sentences": "eval_batch_size valid_batch_size val_batch_size test_batch_size",
    "checkpoint.every_steps": "save_every save_steps save_interval checkpoint_every checkpoint_freq "
    "save_checkpoint_steps save_interval_updates save_freq",
    "checkpoint.keep": "keep_last keep_checkpoints save_total_limit keep_last_ckpts keep_best_ckpts "
    "keep_last_epochs max_to_keep keep_checkpoint keep_interval_updates",
    "model": "transformer encoder decoder architecture arch network net",
    "tokenizer": "vocab vocabulary preprocessing",
    "schedule": "learning_rate_schedule",
    "training": "train trainer optimizer optim optimiser loss",
    "validation": "val valid eval evaluation dev",
    "checkpoint": "saving save ckpt",
}

MEANINGS = {name: here for here, names in _NAMES.items() for name in names.split()}
"""The option or section for each name from elsewhere, or two options with " and " between them."""

_SEARCH = (
    "Decoding options are given when a model is used, not when it is trained: mt translate --beam 5, "
    "--length-penalty, --n-best, --no-repeat-ngram, --max-length or --sample."
)
_RUN = "The run directory is not part of a config: use another one with --run PATH."
_RESUME = "A run resumes automatically when it is trained again with the same config."
_SEARCH_NAMES = (
    "beam beam_size beam_width num_beams length_penalty lenpen max_output_length max_new_tokens "
    "max_decode_len temperature top_k top_p beam_alpha normalize n_best nbest num_return_sequences "
    "block_ngram_repeat no_repeat_ngram_size"
)
_RUN_NAMES = "output_dir model_dir save_dir run_dir experiment_name checkpoint_dir"
_RESUME_NAMES = "resume load_model resume_from resume_from_checkpoint restore_file train_from"
ELSEWHERE = {
    **dict.fromkeys(_SEARCH_NAMES.split(), _SEARCH),
    **dict.fromkeys(_RUN_NAMES.split(), _RUN),
    **dict.fromkeys(_RESUME_NAMES.split(), _RESUME),
}
"""Names of settings that are not in the config: a sentence that says where they belong, and what to do."""


def meaning_of(name: str) -> str | None:
    """The option, section or two options that a name from elsewhere means; None if it is unknown."""
    return MEANINGS.get(_plain(name))


def place_of(name: str) -> str | None:
    """The sentence that says where a setting belongs that is not in the config; None if it is unknown."""
    return ELSEWHERE.get(_plain(name))


def _plain(name: str) -> str:
    return name.strip("-").lower().replace("-", "_")
