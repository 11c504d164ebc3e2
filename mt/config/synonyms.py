"""Names of options in OpenNMT, fairseq, JoeyNMT, Hugging Face and Marian, and what they are called here."""

# For each option or section, or two options with " and " between them, its names elsewhere.
_NAMES = {
    "data.path": "dataset dataset_name data_path train_data",
    "data.src": "src_lang source_lang source",
    "data.tgt": "tgt_lang trg target_lang target",
    "data.num_train_pairs": "max_train_samples max_samples",
    "data.max_length": "max_len max_seq_length src_seq_length tgt_seq_length max_source_length "
    "max_target_length max_source_positions max_target_positions max_position_embeddings",
    "tokenizer.kind": "level tokenizer_type subword bpe",
    "tokenizer.lowercase": "lower do_lower_case",
    "tokenizer.min_frequency": "min_freq voc_min_freq src_words_min_frequency tgt_words_min_frequency "
    "thresholdsrc thresholdtgt",
    "tokenizer.max_size": "vocab_size src_vocab_size tgt_vocab_size voc_limit num_merges nwordssrc nwordstgt "
    "dim_vocabs",
    "tokenizer.shared": "share_vocab joined_dictionary joint_vocab",
    "model.d_model": "hidden_size hidden_dim embedding_dim emb_size word_vec_size encoder_embed_dim "
    "decoder_embed_dim dim_emb n_embd",
    "model.num_heads": "heads nhead n_heads n_head num_attention_heads encoder_attention_heads "
    "decoder_attention_heads transformer_heads",
    "model.num_encoder_layers and model.num_decoder_layers": "layers num_layers n_layers num_hidden_layers",
    "model.num_encoder_layers": "enc_layers encoder_layers enc_depth",
    "model.num_decoder_layers": "dec_layers decoder_layers dec_depth",
    "model.d_ff": "ff_size dim_feedforward ffn_dim intermediate_size transformer_ff transformer_dim_ffn "
    "encoder_ffn_embed_dim encoder_ffn_dim",
    "model.dropout": "dropout_rate hidden_dropout transformer_dropout",
    "model.attention_dropout": "attn_dropout transformer_dropout_attention",
    "model.activation_dropout": "relu_dropout transformer_dropout_ffn",
    "model.activation": "activation_fn activation_function hidden_act",
    "model.norm_first": "pre_norm layer_norm normalize_before layernorm_position encoder_normalize_before "
    "decoder_normalize_before transformer_preprocess",
    "model.initial_std": "init_std initializer_range",
    "model.share_embeddings": "share_all_embeddings tied_embeddings_all share_encoder_decoder_embeddings",
    # Source and target in JoeyNMT, target and output in Marian.
    "model.share_embeddings and model.tie_output": "tied_embeddings",
    "model.tie_output": "tie_weights weight_tying tied_softmax tie_word_embeddings "
    "share_decoder_input_output_embed share_decoder_embeddings",
    "schedule.kind": "scheduler lr_scheduler lr_scheduler_type scheduling decay_method lr_decay_inv_sqrt",
    "schedule.learning_rate": "lr max_lr learn_rate",
    "schedule.factor": "lr_factor learning_rate_factor",
    "schedule.warmup_steps": "warmup warmup_updates num_warmup_steps learning_rate_warmup lr_warmup",
    "training.seed": "random_seed",
    "training.device": "gpu gpus use_cuda cuda",
    "training.precision": "amp fp16 bf16 dtype mixed_precision model_dtype compute_dtype",
    "training.compile": "torch_compile",
    "training.batch_tokens": "batch_size per_device_train_batch_size max_tokens mini_batch mini_batch_words",
    "training.num_micro_batches": "accumulation_steps gradient_accumulation gradient_accumulation_steps "
    "accum_count update_freq batch_multiplier optimizer_delay",
    "training.label_smoothing": "smoothing label_smoothing_factor",
    "training.adam_beta1 and training.adam_beta2": "betas adam_betas",
    "training.adam_beta1": "beta1",
    "training.adam_beta2": "beta2",
    "training.adam_epsilon": "eps adam_eps epsilon",
    "training.clip_norm": "grad_clip clip_grad_norm gradient_clipping max_grad_norm",
    "training.ema_decay": "ema average_decay exponential_smoothing",
    "training.max_steps": "steps num_steps train_steps updates max_update max_updates after_batches",
    "training.max_epochs": "epochs num_epochs max_epoch num_train_epochs after_epochs",
    "training.log_every_steps": "logging_freq logging_steps log_interval report_every",
    "validation.every_steps": "eval_steps valid_steps validation_freq valid_freq validate_interval_updates",
    "validation.metric": "eval_metric early_stopping_metric metric_for_best_model",
    "validation.patience": "early_stopping early_stopping_patience",
    "validation.batch_sentences": "eval_batch_size valid_batch_size",
    "checkpoint.every_steps": "save_steps save_checkpoint_steps save_interval_updates save_freq",
    "checkpoint.keep": "keep_checkpoint keep_best_ckpts keep_last_epochs keep_interval_updates "
    "save_total_limit",
    "model": "transformer encoder decoder arch",
    "tokenizer": "vocab vocabulary",
    "training": "train trainer optimizer optim",
    "validation": "valid eval dev",
}
_MEANINGS = {name: here for here, names in _NAMES.items() for name in names.split()}
_ELSEWHERE = {
    "Decoding options are given when a model is used, such as mt translate --beam 5.": "beam beam_size "
    "num_beams beam_alpha length_penalty lenpen normalize max_output_length max_new_tokens temperature top_k "
    "top_p n_best nbest num_return_sequences block_ngram_repeat no_repeat_ngram_size",
    "The run directory is not part of a config: give it with --run PATH.": "output_dir model_dir save_dir",
    "A run resumes automatically when it is trained again with the same config.": "resume load_model "
    "resume_from_checkpoint restore_file train_from",
}
_SENTENCES = {name: sentence for sentence, names in _ELSEWHERE.items() for name in names.split()}


def meaning_of(name: str) -> str | None:
    """The option, section or two options that a name from elsewhere means; None if it is unknown."""
    return _MEANINGS.get(_plain(name))


def place_of(name: str) -> str | None:
    """The sentence that says where a setting belongs that is not in the config; None if it is unknown."""
    return _SENTENCES.get(_plain(name))


def _plain(name: str) -> str:
    return name.strip("-").lower().replace("-", "_")
